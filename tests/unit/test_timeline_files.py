"""The files of a timeline: what others read in them, and what we do."""

import collections
import dataclasses
import gzip
import json
import os

import numpy as np
import pytest

from keras_ring.launch import timelines
from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.page import as_html
from keras_ring.observe.timeline.merge import merge, read, write
from keras_ring.observe.timeline.model import Kind, Phase, TimelineError
from keras_ring.protocol.timeline_parts import parts_directory
from tests.unit.made_timelines import Job, make, write_parts

NAMES = ("t.json", "t.json.gz", "t.perfetto-trace")


def with_all(timeline):
    """Returns it with what a rank that was killed leaves, and instants."""
    first, *others = timeline.ranks
    spans = first.spans.copy()
    # A slice of a phase that is not known yet, and one of the user.
    spans["phase"][-1] = 77
    spans["phase"][-2] = Phase.USER
    changed = dataclasses.replace(
        first,
        spans=spans,
        ended_ns=None,
        error_ns=None,
        dropped=12,
        reason="rank 1 was lost",
        notes=("unreadable lines: 1", "unreadable spans: 2"),
    )
    return dataclasses.replace(timeline, ranks=(changed, *others))


@pytest.fixture(scope="module")
def made():
    return with_all(make(Job(size=3, steps=3, hosts=2)))


def told(rank):
    """Returns what spans say, by names instead of numbers."""
    columns = ("kind", "phase", "flags", "peer", "tag", "begin", "end", "value")
    return sorted(
        (*values, rank.name_of(name))
        for *values, name in rank.spans[[*columns, "name"]].tolist()
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_is_read(made, tmp_path, name):
    write(made, tmp_path / name)
    got = read(tmp_path / name)
    for a, b in zip(got.ranks, made.ranks, strict=True):
        assert told(a) == told(b)
        rest = dict.fromkeys(("spans", "names", "threads"))
        assert dataclasses.replace(a, **rest) == dataclasses.replace(b, **rest)
        assert set(a.threads.values()) == set(b.threads.values())
        steps = a.of(Phase.STEP)
        assert {a.threads[n] for n in steps["thread"]} == {"MainThread"}


@pytest.mark.parametrize("name", NAMES)
def test_parts_become_a_file(made, tmp_path, name):
    path = tmp_path / name
    parts = parts_directory(path)
    assert parts == tmp_path / f"{name}.ranks"
    write_parts(made, parts)
    merge(path)
    assert os.listdir(tmp_path) == [name]
    other = tmp_path / "other"
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode
    assert len(read(path).ranks) == 3


@pytest.mark.parametrize("name", ["t.json", "t.pftrace"])
def test_how_the_job_was_started_is_noted(made, tmp_path, name):
    write_parts(made, parts_directory(tmp_path / name))
    command = "keras-ring run -np 3 -- python 'my train.py'"
    merge(tmp_path / name, command)
    found = read(tmp_path / name)
    assert [rank.command for rank in found.ranks][:2] == [command, ""]
    page = as_html(analyse(found))
    assert "keras-ring run -np 3 -- python &#39;my train.py&#39;" in page


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            ["/bin/keras-ring", "run", "--env", "KEY=secret", "--", "a b"],
            "keras-ring run --env KEY=... -- 'a b'",
        ),
        (
            ["/x/keras_ring/__main__.py", "run", "--env=KEY=secret", "c"],
            "keras-ring run --env=KEY=... c",
        ),
        (["train.py", "-v"], "python train.py -v"),
    ],
)
def test_a_command_is_told_without_values_of_variables(words, command):
    assert timelines._command(words) == command


def test_a_merge_that_fails_leaves_the_parts(made, tmp_path):
    path = tmp_path / "t.json"
    path.mkdir()
    write_parts(made, parts_directory(path))
    with pytest.raises(OSError, match="directory"):
        merge(path)
    assert sorted(os.listdir(tmp_path)) == ["t.json", "t.json.ranks"]
    assert len(read(parts_directory(path)).ranks) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no rank of keras_ring in it"),
        (b"\x0a\xff", "no trace of Perfetto"),
        (b"{", "not a timeline of keras_ring"),
        (b"[3]", "not a timeline of keras_ring"),
        (b'{"traceEvents": []}', "no rank of keras_ring in it"),
        (b"\x1f\x8b\x08", "t: "),
        (gzip.compress(b"[]" * 999, mtime=0)[:20], "t: "),
    ],
)
def test_other_files_are_an_error(tmp_path, content, message):
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(TimelineError, match=message):
        read(path)


def test_no_file_is_an_error(tmp_path):
    with pytest.raises(TimelineError, match="there is no such file"):
        read(tmp_path / "t")


def stacked(slices):
    """Whether slices, each a begin and an end, follow or contain each other."""
    ends = []
    for begin, end in sorted(slices, key=lambda s: (s[0], -s[1])):
        while ends and ends[-1] <= begin:
            ends.pop()
        if ends and end > ends[-1]:
            return False
        ends.append(end)
    return True


def test_trace_events_are_as_the_format_says(made, tmp_path):
    write(made, tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    by_phase = collections.defaultdict(list)
    for event in content["traceEvents"]:
        by_phase[event["ph"]].append(event)
    assert set(by_phase) == set("MXiCstf")

    names = {
        (event["name"], event["pid"]): event["args"] for event in by_phase["M"]
    }
    assert names["process_name", 3] == {"name": "rank 2 (node2)"}
    assert names["process_sort_index", 3] == {"sort_index": 2}
    labels = names["process_labels", 3]["labels"]
    assert labels == "clock within 1.5 us"

    rows = collections.defaultdict(list)
    for event in by_phase["X"]:
        times = (event["ts"], event["ts"] + event["dur"])
        rows[event["pid"], event["tid"]].append(times)
    assert all(map(stacked, rows.values()))
    first = next(e for e in by_phase["X"] if e["cat"] == "execute")
    assert first["name"] == "allreduce 'layer_0/0' and 4 more"
    assert first["args"] == {"bytes": 8 << 20, "tensors": 5, "collective": 64}
    titles = {event["name"] for event in by_phase["X"]}
    assert {"step 2", "negotiate layer_1/3", "data", "wait"} <= titles

    # Each bucket is one flow over three ranks, bound to slices that run it.
    runs = {
        (e["args"]["collective"], e["pid"], e["tid"], e["ts"])
        for e in by_phase["X"]
        if e["cat"] == "execute"
    }
    ends = by_phase["s"] + by_phase["t"] + by_phase["f"]
    assert {(e["id"], e["pid"], e["tid"], e["ts"]) for e in ends} == runs
    counts = [len(by_phase[phase]) for phase in "stf"]
    assert counts == [12, 12, 12]


@pytest.fixture(scope="module")
def packets(made, tmp_path_factory):
    """What Perfetto's own schema reads."""
    schema = pytest.importorskip("perfetto.protos.perfetto.trace")
    del schema
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    path = tmp_path_factory.mktemp("trace") / "t.perfetto-trace"
    write(made, path)
    trace = perfetto_trace_pb2.Trace.FromString(path.read_bytes())
    return trace.packet


def unknown_fields(message):
    from google.protobuf.unknown_fields import UnknownFieldSet

    return len(UnknownFieldSet(message))


def described(packets):
    return {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in packets
        if packet.HasField("track_descriptor")
    }


def test_perfettos_schema_knows_all_fields(packets):
    for packet in packets:
        assert unknown_fields(packet) == 0
        assert packet.trusted_packet_sequence_id
        for part in (packet.track_event, packet.track_descriptor):
            assert unknown_fields(part) == 0
            for _, value in part.ListFields():
                if hasattr(value, "ListFields"):
                    assert unknown_fields(value) == 0
        for each in packet.track_event.debug_annotations:
            assert unknown_fields(each) == 0


def test_perfetto_sees_a_process_for_each_rank(packets):
    tracks = described(packets)
    processes = [t for t in tracks.values() if t.HasField("process")]
    assert [t.process.process_name for t in processes] == [
        "rank 0 (node1)",
        "rank 1 (node1)",
        "rank 2 (node2)",
    ]
    assert len({t.process.pid for t in processes}) == 3
    assert all(t.child_ordering == t.EXPLICIT for t in processes)
    parents = {t.uuid for t in processes}
    assert all(
        t.parent_uuid in parents
        for t in tracks.values()
        if not t.HasField("process")
    )


def test_perfetto_sees_slices_that_are_stacked(made, packets):
    tracks = described(packets)
    rows = collections.defaultdict(list)
    for packet in packets:
        if packet.HasField("track_event"):
            rows[packet.track_event.track_uuid].append(packet)
    slices = collections.Counter()
    for uuid, row in rows.items():
        assert [p.timestamp for p in row] == sorted(p.timestamp for p in row)
        depth = 0
        for packet in row:
            event = packet.track_event
            if event.type == event.TYPE_SLICE_BEGIN:
                depth += 1
                slices[tracks[uuid].name] += 1
            elif event.type == event.TYPE_SLICE_END:
                depth -= 1
            assert depth >= 0
        assert depth == 0
    spans = sum(
        np.count_nonzero(r.spans["kind"] == Kind.SPAN) for r in made.ranks
    )
    assert slices.total() == spans
    assert set(slices) == {"MainThread", "kr-exec", "queue", "negotiate"}


def test_perfetto_sees_flows_and_counters_and_facts(made, packets):
    tracks = described(packets)
    flows, last = collections.Counter(), collections.Counter()
    values, facts = [], {}
    for packet in packets:
        event = packet.track_event
        flows.update(event.flow_ids)
        last.update(event.terminating_flow_ids)
        if event.type == event.TYPE_COUNTER:
            assert tracks[event.track_uuid].HasField("counter")
            assert tracks[event.track_uuid].name == "pending"
            values.append(event.counter_value)
        if list(event.categories) == ["about"]:
            facts[event.name] = {
                a.name: a.string_value or a.int_value
                for a in event.debug_annotations
            }
    tags = {int(tag) for tag in made.ranks[1].of(Phase.EXECUTE)["tag"]}
    assert flows == dict.fromkeys(tags, 2)
    assert last == dict.fromkeys(tags, 1)
    assert values == [0, 1, 2] * 3
    assert facts["rank 2 (node2)"]["error_ns"] == 1500
    assert facts["rank 0 (node1)"]["dropped"] == 12
    assert "error_ns" not in facts["rank 0 (node1)"]
    threshold = facts["rank 0 (node1)"]["KERAS_RING_FUSION_THRESHOLD"]
    assert threshold == "67108864"
