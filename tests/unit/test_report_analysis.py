"""What a report computes is what was planted."""

import dataclasses

import numpy as np
import pytest

from keras_ring.observe.report import tables, units
from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.steps import find_steps
from keras_ring.observe.report.waterfall import STATES, waterfall
from keras_ring.observe.timeline.model import Phase
from tests.unit.made_timelines import MS, Job, make


def changed(timeline, change):
    """Returns it with other spans of each rank."""
    return dataclasses.replace(
        timeline,
        ranks=tuple(
            dataclasses.replace(rank, spans=change(rank, rank.spans.copy()))
            for rank in timeline.ranks
        ),
    )


@pytest.fixture(scope="module")
def slow():
    return make(Job(size=4, steps=20, slow_data={2: 5.0}))


def test_times_of_a_step_add_up(slow):
    """To the time between the ends of two steps, which is 0.1 ms more."""
    found = analyse(slow)
    activity = found.activity
    data, compute = (
        found.usual(each)
        for each in (activity.program["data"], activity.compute)
    )
    exposed = found.usual(activity.exposed)
    total = found.usual(activity.duration)
    np.testing.assert_allclose(data + compute + exposed, total)
    assert data[2].min() > 4 * MS > data[[0, 1, 3]].max()
    # All compute for 20 ms and a percent, and finish for 0.1.
    assert abs(compute / MS - 20.1).max() < 0.25


def test_lateness_is_what_the_others_wait(slow):
    found = analyse(slow)
    usual = found.steps.usual
    assert set(found.lateness.last[usual]) == {2}
    waiting = found.usual(found.activity.waiting)
    # Of each bucket another rank may be the first, by a percent of 20 ms.
    np.testing.assert_allclose(
        waiting.max(axis=0), found.lateness.late[usual], atol=0.2 * MS
    )
    assert abs(waiting[2]).max() == 0
    waits = found.waits.start
    assert waits[:, 2].sum() == waits.sum() > 0


def test_the_bucket_that_came_latest_tells_how_late_a_rank_was(slow):
    def once(rank, spans):
        late = np.flatnonzero(spans["phase"] == Phase.LATE)
        # Of four buckets of a step the first alone, and then less.
        spans["value"][late] = 3 * MS
        spans["value"][late[::4]] = 7 * MS
        return spans

    late = analyse(changed(slow, once)).lateness.late
    np.testing.assert_array_equal(late, 7 * MS)


def test_what_comes_between_two_steps_is_of_the_later_one():
    job = Job(size=2, steps=9, checkpoint=80.0, checkpoint_every=4)
    found = analyse(make(job))
    durations = found.activity.duration
    assert (durations[:, [4, 8]] > 100 * MS).all()
    assert (durations[:, [1, 2, 3, 5]] < 25 * MS).all()


def test_communication_is_hidden_while_tensors_are_submitted():
    """Of four buckets of 1 ms the last one comes after the last tensor."""
    found = analyse(make(Job(size=2, steps=9)))
    assert found.hidden_share == pytest.approx(0.75)
    communication = found.usual(found.activity.communication)
    np.testing.assert_allclose(communication, 4 * MS, atol=10)
    assert found.communication_share == pytest.approx(4 / 21.5, rel=0.02)


def test_what_runs_between_two_steps_is_not_hidden():
    """As what ranks exchange at the end of an epoch."""

    def exchange(rank, spans):
        # While rank 0 saves, before it comes into the next step.
        saves = rank.of(Phase.CHECKPOINT)
        more = np.resize(rank.of(Phase.EXECUTE), len(saves)).copy()
        more["begin"], more["end"] = saves["begin"], saves["end"]
        spans = np.concatenate([spans, more])
        return spans[np.lexsort((-spans["end"], spans["begin"]))]

    job = Job(size=2, steps=9, checkpoint=80.0, checkpoint_every=4)
    found = analyse(changed(make(job), exchange))
    hidden = found.usual(found.activity.hidden)[0]
    np.testing.assert_allclose(hidden, 3 * MS, atol=10)
    communication = found.usual(found.activity.communication)[0]
    assert communication.sum() == pytest.approx((8 * 4 + 2 * 80) * MS)


def test_buckets_on_two_threads_count_once(slow):
    """A bucket that is within another takes no time of its own."""

    def twice(rank, spans):
        more = rank.of(Phase.EXECUTE).copy()
        more["begin"] += 1000
        more["end"] -= 1000
        more["thread"] += 1
        spans = np.concatenate([spans, more])
        return spans[np.lexsort((-spans["end"], spans["begin"]))]

    np.testing.assert_allclose(
        analyse(changed(slow, twice)).activity.communication,
        analyse(slow).activity.communication,
    )


def test_steps_without_names_are_found_by_what_recurs(slow):
    def unnamed(rank, spans):
        return spans[spans["phase"] != Phase.STEP]

    found = analyse(changed(slow, unnamed))
    named = analyse(slow)
    # The first one has no begin.
    assert found.steps.count == named.steps.count - 1
    assert found.step_time == pytest.approx(named.step_time, rel=0.01)
    assert set(found.lateness.last) == {2}
    np.testing.assert_allclose(
        found.activity.exposed, named.activity.exposed[:, 1:]
    )


def test_steps_without_names_are_alike_on_ranks_that_record_later(slow):
    def late(rank, spans):
        spans = spans[spans["phase"] != Phase.STEP]
        later = spans["begin"] > spans["begin"][0] + rank.rank * 55 * MS
        return spans[later]

    steps = find_steps(changed(slow, late))
    assert np.nanmax(steps.end, axis=0) == pytest.approx(
        np.nanmin(steps.end, axis=0)
    )
    assert np.isnan(steps.end).sum(axis=1).tolist() == [0, 2, 4, 6]


def test_steps_that_are_counted_anew_in_each_epoch(slow):
    def restarted(rank, spans):
        steps = spans["phase"] == Phase.STEP
        spans["value"][steps] %= 10
        return spans

    found, plain = (
        find_steps(each) for each in (changed(slow, restarted), slow)
    )
    np.testing.assert_array_equal(found.end, plain.end)


def test_a_rank_may_lack_steps(slow):
    """It was killed, or began to record later than others."""

    def cut(rank, spans):
        if rank.rank != 1:
            return spans
        begin, end = spans["begin"][0], spans["end"].max()
        middle = (spans["begin"] > begin + 100 * MS) & (
            spans["end"] < end - 100 * MS
        )
        return spans[middle]

    found = analyse(changed(slow, cut))
    assert found.steps.count == 20
    lacking = np.isnan(found.steps.end[1])
    assert lacking[0] and lacking[-1] and not lacking[10]
    assert set(found.lateness.last[found.steps.usual]) == {2}
    assert found.step_time == pytest.approx(analyse(slow).step_time, rel=0.01)


def test_evaluation_is_no_part_of_a_step(slow):
    def evaluated(rank, spans):
        ends = np.sort(rank.of(Phase.STEP)["end"])
        more = spans[:1].copy()
        more["kind"], more["phase"] = 0, Phase.EVALUATE
        more["begin"], more["end"] = ends[9] + 1, ends[9] + 2 * MS
        return np.concatenate([spans, more])

    duration = analyse(changed(slow, evaluated)).activity.duration
    shorter = analyse(slow).activity.duration[:, 10] - duration[:, 10]
    np.testing.assert_allclose(shorter, 2 * MS, atol=10)


def test_fusion_is_told_by_bucket_and_by_tensor(slow):
    fusion = analyse(slow).fusion
    assert (fusion.per_step, fusion.step_bytes) == (4, 32 << 20)
    assert len(fusion.buckets) == 4
    bucket = fusion.buckets[0]
    assert (bucket.count, bucket.tensors) == (20, 5)
    assert bucket.rate == pytest.approx((8 << 20) / 1e-3, rel=1e-3)
    assert len(fusion.tensors) == 20
    tensor = fusion.tensors[0]
    assert (tensor.shared_with, tensor.count) == (5, 20)
    assert tensor.cost == pytest.approx(20 * 1e-3 / 5, rel=1e-3)


def test_the_waterfall_is_that_of_a_median_step(slow):
    found = analyse(slow)
    shown = waterfall(found)
    assert shown.length == pytest.approx(found.step_time, rel=0.01)
    words = [label for label, _ in STATES]
    share = {
        label: (shown.states == index).mean(axis=1) * shown.length / MS
        for index, label in enumerate(words)
    }
    assert share["data"][2] > 4 > share["data"][0]
    assert share["waits for other ranks"][0] > 3
    assert share["waits for other ranks"][2] < 0.2
    # The others have submitted all when the third of four begins.
    assert [len(each) for each in shown.buckets] == [2, 2, 3, 2]


def test_long_tables_are_cut(slow):
    table = tables.tensors(analyse(slow))
    assert (len(table.rows), table.more) == (15, 5)


def test_settings_that_differ_are_told_by_rank(slow):
    first, *others = slow.ranks
    first = dataclasses.replace(first, settings={"KERAS_RING_TLS": "1"})
    others = [
        dataclasses.replace(each, settings={"KERAS_RING_TLS": "0"})
        for each in others
    ]
    changed = dataclasses.replace(slow, ranks=(first, *others))
    assert tables.settings(analyse(changed)).rows == (
        ("KERAS_RING_TLS", "1 (rank 0)"),
        ("KERAS_RING_TLS", "0 (ranks 1-3)"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.time(1_234_000_000), "1.2 s"),
        (units.time(12_340_000), "12.3 ms"),
        (units.time(999), "1 us"),
        (units.time(0), "0 us"),
        (units.num_bytes(1023), "1023 B"),
        (units.num_bytes(64 << 20), "64 MiB"),
        (units.rate(1.25e9), "1.2 GB/s"),
        (units.rate(110e6), "0.11 GB/s"),
        (units.rate(33e3), "33 kB/s"),
        (units.share(0.714), "71%"),
        (units.share(0.004), "0.4%"),
        (units.ranks([3]), "rank 3"),
        (units.ranks([0, 1, 2, 7]), "ranks 0-2, 7"),
        (
            units.ranks(range(0, 40, 2)),
            "ranks 0, 2, 4, 6, 8, 10, 12, 14, and 12 more",
        ),
    ],
)
def test_numbers_as_people_read_them(text, expected):
    assert text == expected
