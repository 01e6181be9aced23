"""A timeline as tracks of events, as viewers show it.

On no track do two slices overlap unless one lies within the other: viewers draw
them as a stack. So tensors, of which many are negotiated at a time, get as many
tracks as there are at a time.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from keras_ring._timeline import about, words
from keras_ring._timeline.model import (
    Kind,
    Phase,
    RankTimeline,
    Spans,
    Timeline,
)
from keras_ring._timeline.words import Arguments

# On tracks of their own, for many tensors and buckets are so far at a time.
_LANES = {Phase.QUEUE: "queue", Phase.NEGOTIATE: "negotiate"}


class Event(NamedTuple):
    """A slice, an instant or a sample of a counter."""

    begin: int
    end: int
    title: str
    category: str
    arguments: Arguments
    collective: int = 0
    """Of the slice that runs a bucket: what it is called on all ranks."""


@dataclass
class Track:
    """A row of a viewer.

    Args:
        rank: Whose.
        name: What is written beside it.
        kind: What its events are. Slices are in the order in which they
            begin, outer ones before inner ones.
        events: In the order of their times.
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
    # Python's own integers, all at once: one by one takes ten times as long.
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
    """Divides slices so that in a part they follow or contain each other."""
    lanes: list[list[Event]] = []
    # Of each lane, the ends of the slices that are open.
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
    """Divides slices so that in a part they follow each other."""
    lanes: list[list[Event]] = []
    # The end of the last slice of each lane; the first that is free is taken.
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
    """Joins the slices of a collective over the ranks that have it.

    Args:
        begun: Collective, begin and place of each slice.

    Returns:
        For each collective that is on several ranks: its number, and begins
        and places in the order of time.
    """
    found = defaultdict(list)
    for collective, begin, place in begun:
        found[collective].append((begin, place))
    for collective, places in found.items():
        if len(places) > 1:
            yield collective, sorted(places)
