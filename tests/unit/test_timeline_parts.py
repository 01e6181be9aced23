"""Parts of timelines, as ranks leave them, killed or not."""

import dataclasses
import json

import numpy as np
import pytest

from keras_ring.observe.timeline.clocks import Alignment, ClockReading
from keras_ring.observe.timeline.model import SPAN, TimelineError
from keras_ring.observe.timeline.parts import read_parts
from tests.unit.made_timelines import BEGIN, Job, make, write_parts


@pytest.fixture
def made():
    return make(Job(size=3, steps=3))


@pytest.fixture
def parts(made, tmp_path):
    write_parts(made, tmp_path)
    return tmp_path


def edit(path, change):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def test_all_that_was_written_is_read(made, parts):
    read = read_parts(parts)
    assert [each.rank for each in read.ranks] == [0, 1, 2]
    assert read.missing == ()
    for got, expected in zip(read.ranks, made.ranks, strict=True):
        np.testing.assert_array_equal(got.spans, expected.spans)
        assert dataclasses.replace(got, spans=None) == dataclasses.replace(
            expected, spans=None
        )


@pytest.mark.parametrize("rest", [1, 47])
def test_a_torn_record_is_left_out(parts, rest):
    path = parts / "rank.1.spans"
    data = path.read_bytes()
    path.write_bytes(data[: -SPAN.itemsize + rest])
    assert len(read_parts(parts).ranks[1].spans) == (
        len(data) // SPAN.itemsize - 1
    )


def test_room_that_was_never_written_is_no_spans(made, parts):
    path = parts / "rank.1.spans"
    path.write_bytes(path.read_bytes() + bytes(4096))
    rank = read_parts(parts).ranks[1]
    assert len(rank.spans) == len(made.ranks[1].spans)
    assert rank.notes == ()


def test_records_of_garbage_are_counted(made, parts):
    path = parts / "rank.1.spans"
    path.write_bytes(path.read_bytes() + b"\xff" * 2 * SPAN.itemsize)
    rank = read_parts(parts).ranks[1]
    assert len(rank.spans) == len(made.ranks[1].spans)
    assert rank.notes == ("unreadable spans: 2",)


def test_a_killed_rank_has_no_end(parts):
    edit(parts / "rank.2.jsonl", lambda lines: lines[:-1])
    ranks = read_parts(parts).ranks
    assert ranks[2].ended_ns is None
    assert ranks[1].ended_ns is not None


def test_a_torn_line_is_noted(parts):
    path = parts / "rank.2.jsonl"
    path.write_bytes(path.read_bytes()[:-30] + b'\xff\x00\n[]\n"x"\n{}\n')
    rank = read_parts(parts).ranks[2]
    assert rank.ended_ns is None
    assert rank.notes == ("unreadable lines: 4",)


def test_spans_alone_are_shown(parts):
    (parts / "rank.1.jsonl").unlink()
    rank = read_parts(parts).ranks[1]
    assert (rank.rank, rank.size, rank.host) == (1, 3, "")
    assert len(rank.spans)
    assert rank.name_of(1) == "name 1"
    # Nothing says how its clock goes.
    assert rank.error_ns is None


def test_a_rank_that_left_nothing_is_missing(parts):
    for path in parts.glob("rank.1.*"):
        path.unlink()
    assert read_parts(parts).missing == (1,)


def test_parts_of_a_larger_job_before_are_left_out(parts):
    for suffix in ("jsonl", "spans"):
        data = (parts / f"rank.2.{suffix}").read_bytes()
        (parts / f"rank.7.{suffix}").write_bytes(data)
    assert len(read_parts(parts).ranks) == 3


def test_times_are_by_the_clock_of_rank_0(made, tmp_path):
    write_parts(made, tmp_path, offsets={1: 7_000_000_000, 2: -123})
    for got, expected in zip(
        read_parts(tmp_path).ranks, made.ranks, strict=True
    ):
        np.testing.assert_array_equal(got.spans, expected.spans)
        assert got.started_ns == expected.started_ns
        assert got.ended_ns == expected.ended_ns
    assert read_parts(tmp_path).ranks[1].offset_ns == 7_000_000_000


def test_an_offset_changes_evenly_between_readings():
    readings = [
        ClockReading(BEGIN + 1000, 500, 20),
        ClockReading(BEGIN, 400, 30),
    ]
    alignment = Alignment(readings)
    times = np.array([-100, 0, 250, 1000, 2000]) + BEGIN
    moved = alignment.apply(times) - times
    assert moved.tolist() == [400, 400, 425, 500, 500]
    assert (alignment.offset_ns, alignment.error_ns) == (500, 30)


def without_clock(lines):
    return [line for line in lines if line["type"] != "clock"]


def test_ranks_of_one_host_need_no_readings(parts):
    edit(parts / "rank.1.jsonl", without_clock)
    assert read_parts(parts).ranks[1].error_ns == 0


def test_without_readings_hosts_are_compared_by_their_wall_clocks(tmp_path):
    made = make(Job(size=2, steps=2, hosts=2))
    write_parts(made, tmp_path, offsets={1: 5_000_000})
    edit(tmp_path / "rank.1.jsonl", without_clock)
    rank = read_parts(tmp_path).ranks[1]
    assert rank.offset_ns == 5_000_000
    assert rank.error_ns is None
    np.testing.assert_array_equal(rank.spans, made.ranks[1].spans)


def test_nothing_there_is_an_error(tmp_path):
    with pytest.raises(TimelineError, match=r"no timeline there; expected"):
        read_parts(tmp_path)
    with pytest.raises(TimelineError, match="No such file"):
        read_parts(tmp_path / "none")
    (tmp_path / "rank.0.jsonl").write_text("garbage\n")
    (tmp_path / "rank.0.spans").write_bytes(b"short")
    with pytest.raises(TimelineError, match="no timeline there"):
        read_parts(tmp_path)


def test_another_version_is_an_error(parts):
    edit(
        parts / "rank.1.jsonl",
        lambda lines: [lines[0] | {"version": 2}, *lines[1:]],
    )
    with pytest.raises(TimelineError, match=r"rank.1.jsonl: .*version 2"):
        read_parts(parts)
