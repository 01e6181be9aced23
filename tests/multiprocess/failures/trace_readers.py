"""Readers of traces that know the published formats, and nothing of ours.

Each returns, by the name of a process, the slices of its tracks, and its
instants as (category, arguments).
"""

import collections
import gzip
import json
from typing import NamedTuple

from perfetto.protos.perfetto.trace import perfetto_trace_pb2


class Slice(NamedTuple):
    """Times are in nanoseconds."""

    category: str
    name: str
    begin: int
    time: int
    arguments: dict

    @property
    def end(self):
        return self.begin + self.time


class Process:
    def __init__(self):
        self.slices = []
        self.instants = []

    def totals(self):
        """Nanoseconds by category."""
        found = collections.Counter()
        for each in self.slices:
            found[each.category] += each.time
        return found

    def of(self, category):
        """Slices of a category, in the order in which they begin."""
        return sorted(
            (each for each in self.slices if each.category == category),
            key=lambda each: each.begin,
        )


def read_published(path):
    """Whichever format a file has, by its name."""
    is_json = ".json" in path.suffixes
    return (read_trace_events if is_json else read_perfetto)(path)


def read_trace_events(path):
    """The Trace Event Format, as chrome://tracing has it."""
    text = path.read_bytes()
    if path.suffix == ".gz":
        text = gzip.decompress(text)
    events = json.loads(text)["traceEvents"]
    names = {
        event["pid"]: event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "process_name"
    }
    found = {name: Process() for name in names.values()}
    for event in events:
        process = found[names[event["pid"]]]
        if event["ph"] == "X":
            begin, time = (round(event[key] * 1e3) for key in ("ts", "dur"))
            process.slices.append(
                Slice(event["cat"], event["name"], begin, time, event["args"])
            )
        elif event["ph"] == "i":
            process.instants.append((event["cat"], event["args"]))
    return found


def read_perfetto(path):
    """Perfetto's protobuf."""
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks, begun = {}, collections.defaultdict(list)
    found = {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            tracks[track.uuid] = track
            if track.HasField("process"):
                found[track.process.process_name] = Process()
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        track = tracks[event.track_uuid]
        process = found[tracks[track.parent_uuid].process.process_name]
        if event.type == event.TYPE_SLICE_BEGIN:
            begun[track.uuid].append((event, packet.timestamp))
        elif event.type == event.TYPE_SLICE_END:
            begin, at = begun[track.uuid].pop()
            time = packet.timestamp - at
            process.slices.append(
                Slice(
                    begin.categories[0], begin.name, at, time, _arguments(begin)
                )
            )
        elif event.type == event.TYPE_INSTANT:
            process.instants.append((event.categories[0], _arguments(event)))
    return found


def _arguments(event):
    return {
        each.name: getattr(each, each.WhichOneof("value"))
        for each in event.debug_annotations
    }
