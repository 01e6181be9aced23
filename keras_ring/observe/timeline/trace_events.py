"""The Trace Event Format, which chrome://tracing and Perfetto show.

A JSON file: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
Its times are in microseconds since the begin of the first span.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from keras_ring.observe.timeline import about
from keras_ring.observe.timeline.model import Kind, RankTimeline, Timeline
from keras_ring.observe.timeline.rebuilding import Rebuilding
from keras_ring.observe.timeline.tracks import Event, Track, flows, tracks

_FLOW = "collective"
_encode = json.JSONEncoder(separators=(",", ":")).encode


def write(timeline: Timeline, file: IO[str]) -> None:
    """Writes a timeline in the Trace Event Format.

    Args:
        timeline: The timeline to write.
        file: A text file.
    """
    base = timeline.begin_ns
    about_it = {
        "format": "keras_ring-timeline",
        "base_ns": base,
        "clock": "rank 0's steady clock",
        "missing_ranks": list(timeline.missing),
    }
    file.write(
        '{"displayTimeUnit":"ns","otherData":' + _encode(about_it) + ","
        '"traceEvents":[\n'
    )
    separator = ""
    for event in _events(timeline, base):
        file.write(separator + _encode(event))
        separator = ",\n"
    file.write("\n]}\n")


def _events(timeline: Timeline, base: int) -> Iterator[dict[str, Any]]:
    begun: list[tuple[int, int, tuple[int, int]]] = []
    for rank in timeline.ranks:
        process = rank.rank + 1
        yield from _process(rank, process)
        for number, track in enumerate(tracks(timeline, rank)):
            thread = {"pid": process, "tid": number}
            if track.kind != Kind.COUNTER:
                yield _named("thread_name", thread, name=track.name)
                yield _named("thread_sort_index", thread, sort_index=number)
            for event in track.events:
                yield _event(track, event, base) | thread
                if event.collective:
                    where = (process, number)
                    begun.append((event.collective, event.begin, where))
    yield from _flows(begun, base)


def _process(rank: RankTimeline, process: int) -> Iterator[dict[str, Any]]:
    owner = {"pid": process}
    yield _named("process_name", owner, name=about.title(rank))
    yield _named("process_labels", owner, labels=about.clock(rank))
    yield _named("process_sort_index", owner, sort_index=rank.rank)


def _named(
    name: str, owner: dict[str, int], /, **arguments: int | str
) -> dict[str, Any]:
    return {"ph": "M", "name": name, "args": arguments, **owner}


def _event(track: Track, event: Event, base: int) -> dict[str, Any]:
    common = {
        "name": event.title,
        "cat": event.category,
        "ts": _microseconds(event.begin - base),
        "args": event.arguments,
    }
    if track.kind == Kind.SPAN:
        duration = _microseconds(event.end - event.begin)
        return {"ph": "X", "dur": duration, **common}
    if track.kind == Kind.INSTANT:
        return {"ph": "i", "s": "t", **common}
    return {"ph": "C", **common}


def _flows(
    begun: list[tuple[int, int, tuple[int, int]]], base: int
) -> Iterator[dict[str, Any]]:
    for collective, slices in flows(begun):
        for index, (begin, (process, thread)) in enumerate(slices):
            last = index == len(slices) - 1
            event: dict[str, Any] = {
                "ph": "f" if last else "t" if index else "s",
                "id": collective,
                "name": _FLOW,
                "cat": _FLOW,
                "ts": _microseconds(begin - base),
                "pid": process,
                "tid": thread,
            }
            # Otherwise the last arrow would end at the next slice.
            yield event | ({"bp": "e"} if last else {})


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def read(file: IO[str]) -> Timeline:
    """Reads a timeline that `write` has written.

    Raises:
        TimelineError: If another program wrote it.
        ValueError: If it is no JSON.
    """
    content = json.load(file)
    if not isinstance(content, dict) or "traceEvents" not in content:
        content = {"traceEvents": content}
    base = int(content.get("otherData", {}).get("base_ns", 0))
    rebuilding = Rebuilding()
    threads: dict[tuple[int, int], str] = {}
    kinds = {"X": Kind.SPAN, "i": Kind.INSTANT, "C": Kind.COUNTER}
    for event in content["traceEvents"]:
        thread = (event.get("pid"), event.get("tid"))
        if event.get("name") == "thread_name":
            threads[thread] = event["args"]["name"]
        kind = kinds.get(event.get("ph"))
        if kind is None:
            continue
        begin = base + _nanoseconds(event["ts"])
        rebuilding.add(
            thread[0],
            threads.get(thread, ""),
            kind,
            event.get("cat", ""),
            event["name"],
            (begin, begin + _nanoseconds(event.get("dur", 0))),
            event.get("args", {}),
        )
    return rebuilding.timeline()
