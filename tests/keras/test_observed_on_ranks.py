"""What `fit` tells of itself: counters and slices of real ranks."""

import pytest

from keras_ring.observe.timeline.merge import read
from tests.harness import run_ranks
from tests.keras import counted_fit, counted_timelines, rank_observed

pytestmark = pytest.mark.timeout(180)

STEP, EPOCH, DATA, CHECKPOINT, EVALUATE = 16, 17, 18, 19, 20
DELAY_NS = rank_observed.DELAY * 1e9


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"steps_per_execution": 3},
        # The last call of an epoch runs fewer.
        {"steps_per_execution": 4},
        {"run_eagerly": True},
    ],
    ids=lambda settings: "".join(settings) or "usual",
)
def test_counters_of_fit(tmp_path, settings):
    counted = run_ranks(
        rank_observed.fit, 2, args=(str(tmp_path / "c"), "", settings)
    ).values
    for counters in counted:
        assert counters["fit_steps"] == 12
        assert counters["epoch"] == 2
        assert counters["activity"] == 0
        assert counters["evaluate_ns"] > 0
        assert counters["checkpoint_ns"] > 0
        assert counters["fit_ns"] > 12 * DELAY_NS
        # Whoever looks meanwhile sees it grow.
        first, second = counters["by_epoch"]
        assert 0 < first < second <= counters["fit_ns"]
        assert counters["samples"] == 48
    fast, slow = (counters["data_wait_ns"] for counters in counted)
    assert slow > 12 * DELAY_NS
    assert fast < slow / 2


def test_slices_of_fit(tmp_path):
    path = tmp_path / "t.json"
    counted = run_ranks(
        rank_observed.fit, 2, args=(str(tmp_path / "c"), str(path), {})
    ).values
    for rank, counters in zip(read(path).ranks, counted, strict=True):
        spans = {
            phase: rank.spans[rank.spans["phase"] == phase]
            for phase in (STEP, EPOCH, DATA, CHECKPOINT, EVALUATE)
        }
        assert spans[STEP]["value"].tolist() == [*range(1, 13)]
        assert spans[EPOCH]["value"].tolist() == [1, 2]
        assert len(spans[EVALUATE]) == 2
        saves = [rank.names[number] for number in spans[CHECKPOINT]["name"]]
        # Once, also where a callback has called `model.save`.
        by_callback, by_program = ((2, 0), (0, 2))[rank.rank]
        assert saves.count("save_model") == by_callback
        assert saves.count("save") == by_program
        assert len(saves) == 3
        waits = spans[DATA]["end"] - spans[DATA]["begin"]
        assert waits.sum() == counters["data_wait_ns"]
        # Each in its epoch.
        for step in spans[STEP]:
            epoch = spans[EPOCH][(step["value"] - 1) // 6]
            assert epoch["begin"] <= step["begin"] <= step["end"]
            assert step["end"] <= epoch["end"]


def test_a_loop_that_takes_batches_itself():
    for steps, counters in run_ranks(rank_observed.loop, 2).values:
        assert steps == 6
        assert counters["samples"] == 24
        assert counters["data_wait_ns"] > 6 * DELAY_NS
        assert counters["activity"] == 0


def test_a_timeline_of_a_training_says_what_was_counted(tmp_path):
    """Who is slowest, what tensors wait, and what computation hides."""
    path = tmp_path / "t.trace"
    counted = run_ranks(counted_fit.train, 4, args=(str(path),), deadline=120)
    counted_timelines.check(path, counted.values)
