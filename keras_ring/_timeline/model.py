"""What a timeline holds: the spans of each rank, on one clock."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Spans = npt.NDArray[Any]
"""Records of `SPAN`."""

# As the core writes them: little endian, without padding.
SPAN = np.dtype(
    [
        ("kind", "u1"),
        ("phase", "u1"),
        ("flags", "<u2"),
        ("thread", "<u4"),
        ("name", "<u4"),
        ("peer", "<i4"),
        ("tag", "<u8"),
        ("begin", "<i8"),
        ("end", "<i8"),
        ("value", "<i8"),
    ]
)


class Kind(enum.IntEnum):
    """What a record is."""

    SPAN = 0
    COUNTER = 1
    INSTANT = 2


class Phase(enum.IntEnum):
    """What a span is of. The first ones are the core's, in a step's order."""

    NEGOTIATE = 0
    QUEUE = 1
    EXECUTE = 2
    WAIT = 3
    PACK = 4
    REDUCE = 5
    UNPACK = 6
    CALLBACK = 7
    STEP = 16
    EPOCH = 17
    DATA = 18
    CHECKPOINT = 19
    EVALUATE = 20
    PREDICT = 21
    USER = 22
    CYCLE = 23
    LATE = 24
    ALGORITHM = 25


class TimelineError(ValueError):
    """A file or a directory is not a timeline."""


@dataclass(frozen=True, kw_only=True)
class RankTimeline:
    """What one rank did.

    Args:
        rank: Whose.
        size: Number of ranks of the job.
        local_rank: Its number among those of its host.
        host: Name of its host.
        pid: Its process id.
        version: Of keras_ring.
        settings: The `KERAS_RING_*` variables that count.
        started_unix_ns: When it was begun, in ns since the epoch.
        started_ns: The same by rank 0's steady clock.
        offset_ns: What was added to its own clock at the end of the timeline.
        error_ns: By how much its times may be wrong at the worst; `None` if
            nobody has measured it.
        ended_ns: When it was ended; `None` if it was not: the rank was killed.
        dropped: How many spans it had no room for.
        reason: Why it ended, if not as it should.
        command: How the job was started, on rank 0.
        notes: What is wrong with its files.
        spans: Records of `SPAN`, in the order in which they began. Their times
            are by rank 0's steady clock.
        names: By the numbers in `spans`; 0 is no name.
        threads: Likewise.
    """

    rank: int
    size: int
    local_rank: int = 0
    host: str = ""
    pid: int = 0
    version: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    started_unix_ns: int = 0
    started_ns: int = 0
    offset_ns: int = 0
    error_ns: int | None = 0
    ended_ns: int | None = None
    dropped: int = 0
    reason: str = ""
    command: str = ""
    notes: tuple[str, ...] = ()
    spans: Spans
    names: Mapping[int, str]
    threads: Mapping[int, str]

    def of(self, *phases: Phase) -> Spans:
        """Returns its spans of these phases."""
        spans = self.spans
        return self._chosen(
            (spans["kind"] == Kind.SPAN) & np.isin(spans["phase"], phases)
        )

    def instants(self, phase: Phase) -> Spans:
        """Returns its instants of this phase."""
        spans = self.spans
        return self._chosen(
            (spans["kind"] == Kind.INSTANT) & (spans["phase"] == phase)
        )

    def counters(self) -> Spans:
        """Returns the samples of its counters."""
        return self._chosen(self.spans["kind"] == Kind.COUNTER)

    def _chosen(self, which: npt.NDArray[np.bool_]) -> Spans:
        chosen: Spans = self.spans[which]
        return chosen

    def name_of(self, number: int) -> str:
        """Returns a name; one that was lost is shown by its number."""
        return self.names.get(number, f"name {number}") if number else ""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What the ranks of a job did.

    Args:
        ranks: Those that have left something, in their order.
    """

    ranks: tuple[RankTimeline, ...]

    @property
    def size(self) -> int:
        """Number of ranks of the job."""
        return max(each.size for each in self.ranks)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that have left nothing."""
        there = {each.rank for each in self.ranks}
        return tuple(rank for rank in range(self.size) if rank not in there)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts, in the order of ranks."""
        return tuple(dict.fromkeys(each.host for each in self.ranks))

    @property
    def begin_ns(self) -> int:
        """When the first span began, by rank 0's clock."""
        return min(
            (int(each.spans["begin"][0]) for each in self._recorded()),
            default=0,
        )

    @property
    def end_ns(self) -> int:
        """When the last span ended."""
        return max(
            (int(each.spans["end"].max()) for each in self._recorded()),
            default=0,
        )

    def _recorded(self) -> list[RankTimeline]:
        return [each for each in self.ranks if len(each.spans)]
