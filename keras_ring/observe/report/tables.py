"""The tables of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keras_ring.observe.report import units
from keras_ring.observe.report.activity import CORE
from keras_ring.observe.report.analysis import Analysis
from keras_ring.observe.report.faults import faults
from keras_ring.observe.report.lateness import CAUSES
from keras_ring.observe.timeline.model import Phase

_MOST = 15
_LONGEST = 60


@dataclass(frozen=True)
class Table:
    """Rows of text.

    Args:
        columns: Headings of the columns.
        rows: The rows that are shown.
        more: Number of rows that are not shown.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    shown = tuple(tuple(row) for row in rows[:_MOST])
    return Table(tuple(columns), shown, max(0, len(rows) - _MOST))


def core_phases(analysis: Analysis) -> Table:
    """Returns the times of the core's phases in a step."""
    ranks = [rank.rank for rank in analysis.timeline.ranks]
    rows = []
    for phase in CORE if analysis.step_time else ():
        times = analysis.usual(analysis.activity.core[phase]).mean(axis=1)
        if not times.any():
            continue
        most = int(np.argmax(times))
        rows.append(
            (
                phase.name.lower(),
                units.time(float(np.median(times))),
                units.time(float(times.min())),
                f"{units.time(float(times[most]))} (rank {ranks[most]})",
            )
        )
    return _table(("phase", "median of ranks", "least", "most"), rows)


def last_ranks(analysis: Analysis) -> Table:
    """Returns the ranks that were last most often, and the causes."""
    lateness, usual = analysis.lateness, analysis.steps.usual
    shares = [
        (lateness.share(rank.rank, usual), rank)
        for rank in analysis.timeline.ranks
    ]
    rows = []
    for share, rank in sorted(shares, key=lambda each: -each[0]):
        if not share:
            break
        steps = lateness.last[usual] == rank.rank
        late = float(np.median(lateness.late[usual][steps]))
        rows.append(
            (
                str(rank.rank),
                rank.host,
                units.share(share),
                units.time(late),
                *(
                    units.time(float(lateness.parts[cause][usual][steps].sum()))
                    for cause in CAUSES
                ),
            )
        )
    columns = ("rank", "host", "was last in", "by, median", *_BECAUSE)
    return _table(columns, rows)


_BECAUSE = tuple(f"in all because of {cause}" for cause in CAUSES)


def tensors(analysis: Analysis) -> Table:
    """Returns the tensors with the highest cost."""
    fusion = analysis.fusion
    columns = (
        "tensor",
        "bytes",
        "reduced",
        "its bucket's time, by its share",
        "until agreed on, median",
        "in buckets of",
    )
    found = () if fusion is None else fusion.tensors
    return _table(
        columns,
        [
            (
                _short(each.name),
                units.num_bytes(each.num_bytes),
                f"{each.count} x",
                units.time(each.cost * 1e9),
                units.time(each.negotiate * 1e9),
                f"{each.shared_with} tensor{'s' * (each.shared_with > 1)}",
            )
            for each in found
        ],
    )


def buckets(analysis: Analysis) -> Table:
    """Returns the buckets that took most time."""
    fusion = analysis.fusion
    columns = (
        *("bucket", "tensors", "bytes", "ran", "median", "rate", "in all"),
        "algorithm",
    )
    found = () if fusion is None else fusion.buckets
    return _table(
        columns,
        [
            (
                _short(each.label),
                str(each.tensors),
                units.num_bytes(each.num_bytes),
                f"{each.count} x",
                units.time(each.seconds * 1e9),
                units.rate(each.rate),
                units.time(each.total * 1e9),
                each.algorithm,
            )
            for each in found
        ],
    )


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2 - 1
    return f"{text[:half]}...{text[-half:]}"


def hosts(analysis: Analysis) -> Table:
    """Returns the traffic of each host and the errors of its clocks."""
    columns = (
        "host",
        "ranks",
        "bytes of tensors per step",
        "rate while buckets run",
        "waits in buckets, per step",
        "clock",
    )
    rows = []
    for host, indexes in _by_host(analysis).items():
        ranks = [analysis.timeline.ranks[index] for index in indexes]
        busy = analysis.usual(analysis.activity.communication)[indexes]
        wait = analysis.usual(analysis.activity.core[Phase.WAIT])[indexes]
        seconds = float(np.nanmedian(busy)) / 1e9 if busy.size else 0.0
        size = analysis.fusion.step_bytes if analysis.fusion else 0.0
        rows.append(
            (
                host or "(unknown)",
                units.ranks([rank.rank for rank in ranks]),
                units.num_bytes(size),
                units.rate(size / seconds if seconds else 0.0),
                units.time(float(np.median(wait)) if wait.size else 0.0),
                _clock([rank.error_ns for rank in ranks]),
            )
        )
    return _table(columns, rows)


def _clock(errors: Sequence[int | None]) -> str:
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return "not compared"
    worst = max(known)
    return f"within {units.time(worst)}" if worst else "that of rank 0"


def _by_host(analysis: Analysis) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index, rank in enumerate(analysis.timeline.ranks):
        found.setdefault(rank.host, []).append(index)
    return found


def memory(analysis: Analysis) -> Table:
    """Returns the counters of bytes in the timeline."""
    most: dict[str, list[tuple[int, int]]] = {}
    for rank in analysis.timeline.ranks:
        samples = rank.counters()
        for number in np.unique(samples["name"]):
            name = rank.name_of(int(number))
            if "bytes" in name and "data" not in name and "control" not in name:
                values = samples["value"][samples["name"] == number]
                entry = (int(values.max()), rank.rank)
                most.setdefault(name, []).append(entry)
    rows = [
        (
            name.replace("_", " "),
            units.num_bytes(float(np.median([value for value, _ in found]))),
            f"{units.num_bytes(max(found)[0])} (rank {max(found)[1]})",
        )
        for name, found in sorted(most.items())
    ]
    return _table(("counter", "largest, median of ranks", "of all"), rows)


def problems(analysis: Analysis) -> Table:
    """Returns the faults of the job and of its timeline."""
    rows = [
        (units.ranks(ranks), what) for what, ranks in faults(analysis.timeline)
    ]
    return _table(("who", "what"), rows)


def settings(analysis: Analysis) -> Table:
    """Returns the settings, and the ranks on which they differ."""
    values: dict[str, dict[str, list[int]]] = {}
    for rank in analysis.timeline.ranks:
        for name, value in rank.settings.items():
            values.setdefault(name, {}).setdefault(value, []).append(rank.rank)
    return _table(("variable", "value"), list(_settings(values)))


def _settings(
    values: Mapping[str, Mapping[str, list[int]]],
) -> Iterator[tuple[str, str]]:
    for name, by_value in sorted(values.items()):
        if len(by_value) == 1:
            yield name, next(iter(by_value))
            continue
        for value, ranks in by_value.items():
            yield name, f"{value} ({units.ranks(ranks)})"
