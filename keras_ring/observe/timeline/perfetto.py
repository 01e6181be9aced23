"""Perfetto's own trace: https://perfetto.dev/docs/reference/synthetic-track-event.

It is smaller than the Trace Event Format, and its times are in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from google.protobuf.message import DecodeError

from keras_ring.observe.timeline import about
from keras_ring.observe.timeline import perfetto_schema as schema
from keras_ring.observe.timeline.model import (
    Kind,
    Phase,
    RankTimeline,
    Timeline,
    TimelineError,
)
from keras_ring.observe.timeline.rebuilding import Rebuilding
from keras_ring.observe.timeline.tracks import Event, Track, flows, tracks
from keras_ring.observe.timeline.words import Arguments

# Sequence number of the packets of one writer; its value does not matter.
_SEQUENCE = 1
# Tracks of a rank are numbered below this.
_TRACKS = 1 << 20
# The encoded tag of field 1 of `Trace`, which is a message.
_PACKET = b"\x0a"


def write(timeline: Timeline, file: IO[bytes]) -> None:
    """Writes a timeline as a trace of Perfetto.

    Args:
        timeline: The timeline to write.
        file: A binary file.
    """
    for packet in _packets(timeline):
        data = packet.SerializeToString()
        file.write(_PACKET + _varint(len(data)) + data)


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _packets(timeline: Timeline) -> Iterator[Any]:
    last = _last_of_flows(timeline)
    for rank in timeline.ranks:
        yield _process(rank)
        for number, track in enumerate(tracks(timeline, rank), start=1):
            uuid = _uuid(rank.rank, number)
            yield _descriptor(track, uuid, number)
            for at, event in _edges(track):
                yield _event(track, uuid, at, event, last)


def _uuid(rank: int, number: int = 0) -> int:
    return (rank + 1) * _TRACKS + number


def _last_of_flows(timeline: Timeline) -> dict[int, int]:
    """Returns the rank at which the flow of each collective ends."""
    begun = (
        (tag, begin, rank.rank)
        for rank in timeline.ranks
        for tag, begin in rank.of(Phase.EXECUTE)[["tag", "begin"]].tolist()
        if tag
    )
    return {collective: slices[-1][1] for collective, slices in flows(begun)}


def _packet(**fields: Any) -> Any:
    packet = schema.messages()["TracePacket"]
    return packet(trusted_packet_sequence_id=_SEQUENCE, **fields)


def _process(rank: RankTimeline) -> Any:
    return _packet(
        track_descriptor={
            "uuid": _uuid(rank.rank),
            "process": {
                # Not the process id: hosts may use the same one.
                "pid": rank.rank + 1,
                "process_name": about.title(rank),
                "process_labels": [about.clock(rank)],
            },
            "child_ordering": schema.EXPLICIT_ORDER,
        }
    )


def _descriptor(track: Track, uuid: int, order: int) -> Any:
    kind: dict[str, Any] = {}
    if track.kind == Kind.COUNTER:
        kind["counter"] = {}
    return _packet(
        track_descriptor={
            "uuid": uuid,
            "parent_uuid": _uuid(track.rank),
            # Perfetto merges tracks of the same name.
            "name": track.name,
            "sibling_order_rank": order,
            **kind,
        }
    )


def _edges(track: Track) -> Iterator[tuple[int, Event | None]]:
    """Yields each event with its begin, and `None` with the end of a slice."""
    ends: list[int] = []
    for event in track.events:
        while ends and ends[-1] <= event.begin:
            yield ends.pop(), None
        yield event.begin, event
        if track.kind == Kind.SPAN:
            ends.append(event.end)
    while ends:
        yield ends.pop(), None


def _event(
    track: Track, uuid: int, at: int, event: Event | None, last: dict[int, int]
) -> Any:
    if event is None:
        fields: dict[str, Any] = {"type": schema.SLICE_END}
    elif track.kind == Kind.COUNTER:
        fields = {
            "type": schema.COUNTER,
            "counter_value": event.arguments["value"],
        }
    else:
        slices = track.kind == Kind.SPAN
        fields = {
            "type": schema.SLICE_BEGIN if slices else schema.INSTANT,
            "name": event.title,
            "categories": [event.category],
            "debug_annotations": _annotations(event.arguments),
        }
        if event.collective in last:
            ends = last[event.collective] == track.rank
            key = "terminating_flow_ids" if ends else "flow_ids"
            fields[key] = [event.collective]
    return _packet(timestamp=at, track_event={"track_uuid": uuid, **fields})


def _annotations(arguments: Arguments) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "int_value" if isinstance(value, int) else "string_value": value,
        }
        for name, value in arguments.items()
    ]


def read(file: IO[bytes]) -> Timeline:
    """Reads a timeline that `write` has written.

    Raises:
        TimelineError: If another program wrote it, or it is no trace.
    """
    try:
        trace = schema.messages()["Trace"].FromString(file.read())
    except DecodeError as error:
        raise TimelineError(f"no trace of Perfetto: {error}") from None
    rebuilding = Rebuilding()
    described = {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            described[packet.track_descriptor.uuid] = packet.track_descriptor
    # The slices of each track that have begun and have not ended.
    open_slices: dict[int, list[tuple[int, Any]]] = {}
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        track = described.get(event.track_uuid)
        if track is None:
            continue
        begun = open_slices.setdefault(event.track_uuid, [])
        if event.type == schema.SLICE_BEGIN:
            begun.append((at, event))
        elif event.type == schema.SLICE_END and begun:
            begin, first = begun.pop()
            _add(rebuilding, track, Kind.SPAN, first, (begin, at))
        elif event.type == schema.INSTANT:
            _add(rebuilding, track, Kind.INSTANT, event, (at, at))
        elif event.type == schema.COUNTER:
            _add(rebuilding, track, Kind.COUNTER, event, (at, at))
    return rebuilding.timeline()


def _add(
    rebuilding: Rebuilding,
    track: Any,
    kind: Kind,
    event: Any,
    times: tuple[int, int],
) -> None:
    arguments = {
        each.name: (
            each.string_value
            if each.HasField("string_value")
            else each.int_value
        )
        for each in event.debug_annotations
    }
    counter = kind == Kind.COUNTER
    rebuilding.add(
        track.parent_uuid,
        track.name,
        kind,
        event.categories[0] if event.categories else "",
        track.name if counter else event.name,
        times,
        {"value": event.counter_value} if counter else arguments,
    )
