"""Whatever is in a directory or a file, a timeline or an error comes out."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.verdict import verdict
from keras_ring.observe.timeline.merge import read, write
from keras_ring.observe.timeline.model import SPAN, TimelineError
from tests.unit.made_timelines import Job, make, write_parts

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63), 10**30, 2**62])
    | st.floats()
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)
_KEYS = st.sampled_from(
    "rank size local_rank host pid started_unix_ns started_ns settings id"
    " text name at_ns offset_ns error_ns ended_ns dropped reason".split()
)
_LINES = st.builds(
    lambda kind, rest: {
        "format": "keras_ring-timeline",
        "version": 1,
        **rest,
        "type": kind,
    },
    st.sampled_from(["rank", "name", "thread", "clock", "end"]),
    st.dictionaries(_KEYS, _VALUES, max_size=8),
)


def parsed(path):
    """Returns the verdict on what is there, if it is a timeline."""
    try:
        timeline = read(path)
    except TimelineError:
        return None
    return verdict(analyse(timeline))


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lines=st.lists(_LINES | _VALUES, max_size=6),
    spans=st.binary(max_size=4 * SPAN.itemsize),
)
def test_parts_of_anything(tmp_path, lines, spans):
    (tmp_path / "rank.0.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "rank.0.spans").write_bytes(spans)
    parsed(tmp_path)


@pytest.mark.parametrize("value", [10**30, 2**63, -(2**70), 1e300, "x", None])
@pytest.mark.parametrize(
    ("line", "key"),
    [
        (0, "started_ns"),
        (0, "started_unix_ns"),
        (0, "size"),
        (-1, "ended_ns"),
        (-2, "at_ns"),
        (-2, "offset_ns"),
        (-2, "error_ns"),
    ],
)
def test_numbers_that_cannot_be(tmp_path, line, key, value):
    write_parts(make(Job(size=2, steps=3)), tmp_path)
    path = tmp_path / "rank.1.jsonl"
    lines = [json.loads(each) for each in path.read_text().splitlines()]
    lines[line][key] = value
    path.write_text("\n".join(map(json.dumps, lines)))
    assert len(read(tmp_path).ranks) == 2
    assert parsed(tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_parts_that_were_cut_and_changed(tmp_path, seed):
    """As by a disk that was full, or a rank that was killed."""
    rng = random.Random(seed)
    write_parts(make(Job(size=3, steps=4)), tmp_path)
    for path in tmp_path.iterdir():
        data = bytearray(path.read_bytes())
        del data[rng.randrange(len(data)) :]
        for _ in range(rng.randrange(8) if data else 0):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
    parsed(tmp_path)


@pytest.mark.parametrize("name", ["t.json", "t.trace"])
def test_files_that_were_cut_and_changed(tmp_path, name):
    path = tmp_path / name
    write(make(Job(size=2, steps=2, buckets=1, tensors=1)), path)
    whole = path.read_bytes()
    rng = random.Random(name)
    for _ in range(150):
        data = bytearray(whole)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.randrange(1, 5) if data else 0):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        parsed(path)
