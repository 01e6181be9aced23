"""What was measured, and what follows from it."""

import dataclasses
import json
import statistics

from keras_ring.bench.record import Record

FLOOR, OURS, MPI = "none", "keras_ring", "Open MPI"
# Ours, as the optimizer calls it.
AS_GRADIENTS = "keras_ring, as gradients"
# What is not another system.
_NO_PEERS = (FLOOR, OURS, AS_GRADIENTS)


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Where something was measured.

    Args:
        layout: A `Layout`, as it is typed.
        link: What was between the hosts.
    """

    layout: str
    link: str

    def __str__(self):
        """For titles."""
        return f"{self.layout}, {self.link}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """One round of a case on a system.

    Args:
        place: Where.
        record: What came of it.
    """

    place: Place
    record: Record


class Figures:
    """Medians of rounds.

    Args:
        measured: Of all places, systems and rounds.
    """

    def __init__(self, measured):
        self._found = {}
        for each in measured:
            key = (each.place, each.record.case, each.record.system)
            self._found.setdefault(key, []).append(each.record)

    def places(self):
        """Returns where something was measured, in that order."""
        return list(dict.fromkeys(place for place, _, _ in self._found))

    def cases(self, place):
        """Returns the cases of a place, in the order of measurement."""
        return list(
            dict.fromkeys(case for at, case, _ in self._found if at == place)
        )

    def systems(self, place):
        """Returns the systems of a place, in the order of measurement."""
        return list(
            dict.fromkeys(name for at, _, name in self._found if at == place)
        )

    def peers(self, place):
        """Returns those that are neither ours nor the floor."""
        return [each for each in self.systems(place) if each not in _NO_PEERS]

    def rounds(self, place, case, system):
        """Returns how often it was measured."""
        return len(self._found.get((place, case, system), ()))

    def num_bytes(self, place, case):
        """Returns the bytes of a case's tensors, 0 if it was not measured."""
        for (at, name, _), records in self._found.items():
            if (at, name) == (place, case):
                return records[0].num_bytes
        return 0

    def median_us(self, place, case, system):
        """Returns the time; `None` if there is none."""
        return self._median(
            (place, case, system), lambda record: record.median_us
        )

    def p90_us(self, place, case, system):
        """Returns the time that nine in ten keep; `None` if there is none."""
        return self._median(
            (place, case, system), lambda record: record.percentile_us(90)
        )

    def cpu_s_per_gb(self, place, case, system):
        """Returns the CPU time of all ranks; `None` if there is none."""
        return self._median(
            (place, case, system), lambda record: record.cpu_s_per_gb
        )

    def best_peer(self, place, case, figure):
        """Returns the least of the peers' figures; `None` if there is none.

        Args:
            place: Where.
            case: Of what.
            figure: `median_us` or `cpu_s_per_gb`.
        """
        found = [figure(place, case, peer) for peer in self.peers(place)]
        return min((each for each in found if each is not None), default=None)

    def tcp_gb_s(self, place):
        """Returns what plain TCP carried both ways at once, round by round."""
        rates = {}
        for (at, _, system), records in self._found.items():
            if (at, system) != (place, OURS):
                continue
            for number, record in enumerate(records):
                if record.link.gb_s is not None:
                    # The same for all cases of a round.
                    rates[number] = record.link.gb_s
        return list(rates.values())

    def bound_us(self, place, case):
        """Returns the least time for float32; `None` if it is not known."""
        return self._median_of_links(
            place, case, lambda each: each.link.bound_us(each.num_bytes)
        )

    def bound_cpu_s_per_gb(self, place, case):
        """Returns what plain TCP costs all ranks; `None` if not known."""
        return self._median_of_links(
            place, case, lambda each: each.link.bound_cpu_s_per_gb
        )

    def _median_of_links(self, place, case, figure):
        found = [
            figure(record)
            for (at, name, _), records in self._found.items()
            for record in records
            if (at, name) == (place, case) and figure(record) is not None
        ]
        return statistics.median(found) if found else None

    def _median(self, key, figure):
        records = self._found.get(key)
        return records and statistics.median(map(figure, records))


def to_json(measured, absent, failures):
    """Returns what `from_json` takes."""
    return json.dumps(
        {
            "measured": [dataclasses.asdict(each) for each in measured],
            "absent": absent,
            "failures": failures,
        }
    )


def from_json(text):
    """Returns what `to_json` was called with."""
    fields = json.loads(text)
    measured = [
        Measured(Place(**each["place"]), Record.from_dict(each["record"]))
        for each in fields["measured"]
    ]
    return measured, fields["absent"], fields["failures"]
