"""A timeline as tracks of events for viewers.

Two slices of a track do not overlap unless one contains the other, because
viewers draw them as a stack. Many tensors are negotiated at a time, so they
get as many tracks as needed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from keras_ring.observe.timeline import about, words
from keras_ring.observe.timeline.model import (
    Kind,
    Phase,
    RankTimeline,
    Spans,
    Timeline,
)
from keras_ring.observe.timeline.words import Arguments

# Phases with tracks of their own: many tensors or buckets are in them at once.
_LANES = {Phase.QUEUE: "queue", Phase.NEGOTIATE: "negotiate"}


class Event(NamedTuple):
    """A slice, an instant or a sample of a counter."""

    begin: int
    end: int
    title: str
    category: str
    arguments: Arguments
    collective: int = 0
    """Number of a bucket, the same on all ranks, in the slice that runs it."""


@dataclass
class Track:
    """A row of a viewer.

    Args:
        rank: Index of the rank.
        name: Label of the track.
        kind: Kind of its events.
        events: The events in the order of their times. Slices are in the order
            in which they begin, outer ones before inner ones.
    """

    rank: int
    name: str
    kind: Kind
    events: list[Event] = field(default_factory=list)


def tracks(timeline: Timeline, rank: RankTimeline) -> Iterator[Track]:
    """Returns the tracks of one rank, in the order to show them."""
    yield _about(timeline, rank)
    spans = rank.spans
    laned = np.isin(spans["phase"], list(_LANES))
    slices = spans["kind"] == Kind.SPAN
    instants = spans["kind"] == Kind.INSTANT
    for thread in np.unique(spans["thread"][(slices & ~laned) | instants]):
        here = spans["thread"] == thread
        name = rank.threads.get(int(thread), f"thread {thread}")
        events = _events(rank, spans[here & slices & ~laned])
        for lane in _nested(events):
            yield Track(rank.rank, name, Kind.SPAN, lane)
        events = _events(rank, spans[here & instants])
        if events:
            yield Track(rank.rank, name, Kind.INSTANT, events)
    for phase, name in _LANES.items():
        chosen = spans[slices & (spans["phase"] == phase)]
        for lane in _flat(_events(rank, chosen)):
            yield Track(rank.rank, name, Kind.SPAN, lane)
    yield from _counters(rank)


def _about(timeline: Timeline, rank: RankTimeline) -> Track:
    begin = timeline.begin_ns
    if len(rank.spans):
        begin = int(rank.spans["begin"][0])
    event = Event(
        begin,
        begin,
        about.title(rank),
        about.CATEGORY,
        about.facts(rank),
    )
    return Track(rank.rank, "about", Kind.INSTANT, [event])


def _events(rank: RankTimeline, spans: Spans) -> list[Event]:
    events = []
    columns = ("phase", "flags", "name", "peer", "tag", "begin", "end", "value")
    # Converted to Python integers all at once, which is ten times as fast.
    for phase, flags, number, peer, tag, begin, end, value in zip(
        *(spans[column].tolist() for column in columns), strict=True
    ):
        name = rank.name_of(number)
        fields = {"value": value, "peer": peer, "tag": tag, "flags": flags}
        events.append(
            Event(
                begin,
                end,
                words.title(phase, name, peer, value),
                words.word(phase),
                words.arguments(phase, name, fields),
                tag if phase == Phase.EXECUTE else 0,
            )
        )
    return events


def _counters(rank: RankTimeline) -> Iterator[Track]:
    samples = rank.counters()
    for number in np.unique(samples["name"]):
        chosen = samples[samples["name"] == number]
        name = rank.name_of(int(number))
        yield Track(
            rank.rank,
            name,
            Kind.COUNTER,
            [
                Event(at, at, name, "counter", {"value": value})
                for at, value in zip(
                    chosen["begin"].tolist(),
                    chosen["value"].tolist(),
                    strict=True,
                )
            ],
        )


def _nested(events: Iterable[Event]) -> list[list[Event]]:
    """Divides slices into lists in which they follow or contain each other."""
    lanes: list[list[Event]] = []
    # For each lane, the ends of the slices that are open.
    open_ends: list[list[int]] = []
    for event in events:
        for lane, ends in zip(lanes, open_ends, strict=True):
            while ends and ends[-1] <= event.begin:
                ends.pop()
            if not ends or event.end <= ends[-1]:
                lane.append(event)
                ends.append(event.end)
                break
        else:
            lanes.append([event])
            open_ends.append([event.end])
    return lanes


def _flat(events: Iterable[Event]) -> list[list[Event]]:
    """Divides slices into lists in which they follow each other."""
    lanes: list[list[Event]] = []
    # The end of the last slice of each lane; the first free lane is taken.
    ends: list[tuple[int, int]] = []
    for event in events:
        if ends and ends[0][0] <= event.begin:
            _, number = heapq.heappop(ends)
        else:
            number = len(lanes)
            lanes.append([])
        lanes[number].append(event)
        heapq.heappush(ends, (event.end, number))
    return lanes


def flows(
    begun: Iterable[tuple[int, int, Any]],
) -> Iterator[tuple[int, list[tuple[int, Any]]]]:
    """Connects the slices of each collective over the ranks that have it.

    Args:
        begun: Collective, begin and track of each slice.

    Returns:
        For each collective that is on several ranks: its number, and begins
        and tracks in the order of time.
    """
    found = defaultdict(list)
    for collective, begin, track in begun:
        found[collective].append((begin, track))
    for collective, slices in found.items():
        if len(slices) > 1:
            yield collective, sorted(slices)
