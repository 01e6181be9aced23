"""Reads the parts of a timeline, one per rank, as the core leaves them.

Ranks may have been killed at any moment, so any part may be missing or
incomplete. All that can be read is read, and problems are noted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keras_ring.observe.timeline.clocks import Alignment, ClockReading
from keras_ring.observe.timeline.model import (
    SPAN,
    Kind,
    RankTimeline,
    Spans,
    Timeline,
    TimelineError,
)

_FORMAT = "keras_ring-timeline"
_VERSION = 1
_PART = re.compile(r"rank\.([0-9]{1,6})\.(?:jsonl|spans)")


@dataclass
class _Notes:
    """The lines of `rank.N.jsonl`."""

    rank: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    names: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    clock: list[ClockReading] = field(default_factory=list)
    garbage: int = 0

    def take(self, line: Mapping[str, Any]) -> None:
        """Takes a line, and raises an error if its type is unknown."""
        kind = line["type"]
        if kind == "rank":
            _check_format(line)
            self.rank = dict(line)
        elif kind == "name":
            self.names[int(line["id"])] = str(line["text"])
        elif kind == "thread":
            self.threads[int(line["id"])] = str(line["name"])
        elif kind == "clock":
            reading = [line[key] for key in ("at_ns", "offset_ns", "error_ns")]
            if any(abs(value) >= _LARGEST for value in reading):
                raise ValueError(line)
            self.clock.append(ClockReading(*map(int, reading)))
        elif kind == "end":
            self.end = dict(line)

    @property
    def reads_hosts_clock(self) -> bool:
        """Returns whether its steady clock can be related to the epoch."""
        return bool(self.rank.get("started_unix_ns"))

    @property
    def boot_ns(self) -> int:
        """Time at which its steady clock was 0, by its host's wall clock."""
        unix, steady = (_number(self.rank, f"started{x}_ns") for x in _CLOCKS)
        return unix - steady


_CLOCKS = ("_unix", "")


def _check_format(line: Mapping[str, Any]) -> None:
    if line.get("format") != _FORMAT or line.get("version") != _VERSION:
        raise TimelineError(
            f"a part of format {line.get('format')!r}, version"
            f" {line.get('version')!r}; expected {_FORMAT!r}, version"
            f" {_VERSION}: use the keras-ring that the job ran with"
        )


# The launcher starts fewer ranks.
_MOST_RANKS = 1 << 20
# Times beyond a century, and offsets between such times, are invalid.
_LARGEST = 1 << 62


def _number(line: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = line.get(key, default)
    if isinstance(value, int) and abs(value) < _LARGEST:
        return value
    return default


def read_parts(directory: Path) -> Timeline:
    """Reads the files that the ranks of a job have left.

    Args:
        directory: Path of the directory of the `rank.N.jsonl` and
            `rank.N.spans`.

    Raises:
        TimelineError: If the directory holds no timeline, or one of another
            version.
    """
    try:
        found = [_PART.fullmatch(path.name) for path in directory.iterdir()]
    except OSError as error:
        raise TimelineError(f"{directory}: {error.strerror}") from None
    numbers = sorted({int(match[1]) for match in found if match})
    notes = {
        rank: _read_notes(directory / f"rank.{rank}.jsonl") for rank in numbers
    }
    spans = {
        rank: _read_spans(directory / f"rank.{rank}.spans") for rank in numbers
    }
    usable = [r for r in numbers if notes[r].rank or len(spans[r][0])]
    if not usable:
        raise TimelineError(
            f"{directory}: no timeline there; expected rank.N.jsonl and"
            " rank.N.spans, as KERAS_RING_TIMELINE makes ranks write them"
        )
    size = _size({rank: notes[rank] for rank in usable})
    return Timeline(
        ranks=tuple(
            _rank_timeline(
                rank,
                size,
                notes[rank],
                *spans[rank],
                alignment=_alignment(notes[rank], notes.get(0)),
            )
            for rank in usable
            # A larger job may have left its parts here before.
            if rank < size
        )
    )


def _size(notes: Mapping[int, _Notes]) -> int:
    """Returns the number of ranks that they state, or else of those there."""
    said = [_number(each.rank, "size") for each in notes.values()]
    size = max((each for each in said if each <= _MOST_RANKS), default=0)
    return size if size > min(notes) else max(notes) + 1


def _read_notes(path: Path) -> _Notes:
    notes = _Notes()
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return notes
    for line in lines:
        try:
            notes.take(json.loads(line))
        except TimelineError as error:
            raise TimelineError(f"{path}: {error}") from None
        except (ValueError, LookupError, TypeError, ArithmeticError):
            notes.garbage += 1
        except RecursionError:
            notes.garbage += 1
    return notes


def _read_spans(path: Path) -> tuple[Spans, int]:
    """Returns the records of a file, and the number of invalid ones."""
    try:
        data = path.read_bytes()
    except OSError:
        return np.empty(0, SPAN), 0
    whole = len(data) // SPAN.itemsize
    spans = np.frombuffer(data, SPAN, whole)
    # If a file was enlarged before it was written, its end is zeros.
    right = (spans["begin"] > 0) & (spans["kind"] <= max(Kind))
    right &= (spans["begin"] < _LARGEST) & (spans["end"] < _LARGEST)
    right &= (spans["end"] >= spans["begin"]) | (spans["kind"] != Kind.SPAN)
    written = int(np.count_nonzero(spans["begin"]))
    return spans[right].copy(), written - int(np.count_nonzero(right))


def _alignment(notes: _Notes, first: _Notes | None) -> Alignment:
    if notes.clock or first is notes:
        return Alignment(notes.clock)
    if first is None or not first.rank or not notes.rank:
        return Alignment((), error_ns=None)
    if notes.rank.get("host") == first.rank.get("host"):
        return Alignment(())
    alignment = Alignment((), error_ns=None)
    if first.reads_hosts_clock and notes.reads_hosts_clock:
        # Wall clocks of hosts are mostly right to some milliseconds; steady
        # clocks have nothing in common.
        offset = notes.boot_ns - first.boot_ns
        alignment = Alignment([ClockReading(0, offset, 0)])
        alignment.error_ns = None
    return alignment


def _rank_timeline(
    rank: int,
    size: int,
    notes: _Notes,
    spans: Spans,
    wrong: int,
    *,
    alignment: Alignment,
) -> RankTimeline:
    spans["begin"] = alignment.apply(spans["begin"])
    spans["end"] = alignment.apply(spans["end"])
    instant = spans["kind"] != Kind.SPAN
    spans["end"][instant] = spans["begin"][instant]
    # By begin; of spans that begin together, the longest comes first.
    spans = spans[np.lexsort((-spans["end"], spans["begin"]))]
    said, end = notes.rank, notes.end or {}
    settings = said.get("settings")
    problems = [] if said else ["who it was is lost"]
    if notes.garbage:
        problems.append(f"unreadable lines: {notes.garbage}")
    if wrong:
        problems.append(f"unreadable spans: {wrong}")

    def aligned(time: int) -> int:
        return int(alignment.apply(np.array([time]))[0])

    return RankTimeline(
        rank=rank,
        size=size,
        local_rank=_number(said, "local_rank"),
        host=str(said.get("host", "")),
        pid=_number(said, "pid"),
        version=str(said.get("keras_ring", "")),
        settings=(
            {str(key): str(value) for key, value in settings.items()}
            if isinstance(settings, dict)
            else {}
        ),
        started_unix_ns=_number(said, "started_unix_ns"),
        started_ns=aligned(_number(said, "started_ns")),
        offset_ns=alignment.offset_ns,
        error_ns=alignment.error_ns,
        ended_ns=aligned(_number(end, "ended_ns")) if end else None,
        dropped=_number(end, "dropped"),
        reason=str(end.get("reason", "")),
        notes=tuple(problems),
        spans=spans,
        names=notes.names,
        threads=notes.threads,
    )
