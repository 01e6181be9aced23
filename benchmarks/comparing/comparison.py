"""The outcome of a comparison, as it is recorded."""

import dataclasses
import json
import statistics

from keras_ring.bench.record import Record


@dataclasses.dataclass
class Comparison:
    """All that a report is made from.

    Args:
        facts: What the machine and the versions are, by name.
        yardsticks: What memory and loopback can do, by name.
        sections: Section -> the names of its cases, in order.
        systems: Names, in the order in which they are shown.
        records: One per system and case, of all rounds together.
        failures: (system, reason) of each run that failed.
        skipped: (system, reason) of what cannot run here.
    """

    facts: dict[str, object]
    yardsticks: dict[str, object]
    sections: dict[str, list[str]]
    systems: list[str]
    records: list[Record]
    failures: list[tuple[str, str]]
    skipped: list[tuple[str, str]]

    def find(self, system, case):
        """Returns the record of a system and case, or `None`."""
        for record in self.records:
            if (record.system, record.case) == (system, case):
                return record
        return None

    def of_case(self, case):
        """Returns all systems' records of a case, in the systems' order."""
        found = [self.find(system, case) for system in self.systems]
        return [record for record in found if record is not None]

    def of_system(self, system, section):
        """Returns a system's records of a section, in the cases' order."""
        cases = self.sections.get(section, [])
        found = [self.find(system, case) for case in cases]
        return [record for record in found if record is not None]

    def to_json(self):
        """Returns what `from_json` takes."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, text):
        """Returns the comparison that `to_json` was called on."""
        fields = json.loads(text)
        fields["records"] = [
            Record.from_dict(each) for each in fields["records"]
        ]
        for name in ("failures", "skipped"):
            fields[name] = [tuple(each) for each in fields[name]]
        return cls(**fields)


def merge(rounds):
    """Makes one record of each system's and case's records.

    All iterations count alike, whatever their round, so percentiles are over
    all of them; of what a round has one number for, it is the median, and of
    memory the most.

    Args:
        rounds: Records of all rounds, in any order.
    """
    found = {}
    for record in rounds:
        found.setdefault((record.system, record.case), []).append(record)
    return [_merged(records) for records in found.values()]


def _merged(records):
    controls = [
        record.control_bytes
        for record in records
        if record.control_bytes is not None
    ]
    return dataclasses.replace(
        records[0],
        times_us=tuple(time for record in records for time in record.times_us),
        cpu_us=statistics.median([record.cpu_us for record in records]),
        memory_extra_bytes=max(r.memory_extra_bytes for r in records),
        control_bytes=statistics.median(controls) if controls else None,
        phases_ns={
            phase: statistics.median(
                [r.phases_ns.get(phase, 0.0) for r in records]
            )
            for phase in records[0].phases_ns
        },
    )
