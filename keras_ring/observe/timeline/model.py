"""The contents of a timeline: the spans of each rank, on one clock."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Spans = npt.NDArray[Any]
"""Records of `SPAN`."""

# Layout of the records that the core writes: little endian, without padding.
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
    """Kind of a record."""

    SPAN = 0
    COUNTER = 1
    INSTANT = 2


class Phase(enum.IntEnum):
    """Phase of a span. Those of the core come first, in a step's order."""

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
    """The records of one rank.

    Args:
        rank: Index of the rank.
        size: Number of ranks of the job.
        local_rank: Index of the rank among those of its host.
        host: Name of its host.
        pid: Its process id.
        version: Version of keras_ring.
        settings: The `KERAS_RING_*` variables in effect.
        started_unix_ns: Time of the start of recording, in ns since the epoch.
        started_ns: The same time by rank 0's steady clock.
        offset_ns: Offset of its clock to rank 0's at the end of the timeline,
            in ns.
        error_ns: Largest error of its times, in ns; `None` if it was not
            measured.
        ended_ns: Time of the end of recording; `None` if the rank was killed.
        dropped: Number of spans that were lost for lack of room.
        reason: Reason of the end, if it was not a regular one.
        command: Command line of the job, on rank 0.
        notes: Problems with its files.
        spans: Records of `SPAN`, in the order in which they began. Their times
            are by rank 0's steady clock.
        names: Names by the numbers in `spans`; 0 is no name.
        threads: Names of threads by their numbers in `spans`.
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
        """Returns the spans of the given phases."""
        spans = self.spans
        return self._chosen(
            (spans["kind"] == Kind.SPAN) & np.isin(spans["phase"], phases)
        )

    def instants(self, phase: Phase) -> Spans:
        """Returns the instants of a phase."""
        spans = self.spans
        return self._chosen(
            (spans["kind"] == Kind.INSTANT) & (spans["phase"] == phase)
        )

    def counters(self) -> Spans:
        """Returns the samples of counters."""
        return self._chosen(self.spans["kind"] == Kind.COUNTER)

    def _chosen(self, which: npt.NDArray[np.bool_]) -> Spans:
        chosen: Spans = self.spans[which]
        return chosen

    def name_of(self, number: int) -> str:
        """Returns the name with a number, or the number if it was lost."""
        return self.names.get(number, f"name {number}") if number else ""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The records of all ranks of a job.

    Args:
        ranks: Timelines of the ranks that have left records, by rank.
    """

    ranks: tuple[RankTimeline, ...]

    @property
    def size(self) -> int:
        """Number of ranks of the job."""
        return max(each.size for each in self.ranks)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that have left no records."""
        there = {each.rank for each in self.ranks}
        return tuple(rank for rank in range(self.size) if rank not in there)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts, in the order of ranks."""
        return tuple(dict.fromkeys(each.host for each in self.ranks))

    @property
    def begin_ns(self) -> int:
        """Time of the first begin of a span, by rank 0's clock."""
        return min(
            (int(each.spans["begin"][0]) for each in self._recorded()),
            default=0,
        )

    @property
    def end_ns(self) -> int:
        """Time of the last end of a span, by rank 0's clock."""
        return max(
            (int(each.spans["end"].max()) for each in self._recorded()),
            default=0,
        )

    def _recorded(self) -> list[RankTimeline]:
        return [each for each in self.ranks if len(each.spans)]
