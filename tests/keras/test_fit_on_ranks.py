"""Programs for one process, on ranks: callbacks, metrics, layers, inference."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import rank_fit

from tests.harness import only, run_calls, run_ranks

pytestmark = pytest.mark.timeout(900)

SHOWN = ("file", "terminal", "alone", "keras", "off", "quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="module")
def two_ranks(folder):
    return run_calls(
        rank_fit,
        2,
        [
            ("plain_writers", folder),
            ("plain_backup", folder),
            ("models_of_ranks", folder),
            ("inference",),
            *(("metric_state", name) for name in rank_fit.rank_layers.METRICS),
            ("normalization",),
            *(("shown", kind) for kind in SHOWN),
            ("shown", "broken"),
            ("parts_of_data", folder),
            ("input_pipeline", 1),
            ("input_pipeline", 4),
        ],
        deadline=280,
    )


def test_callbacks_of_one_process_write_on_rank_0(two_ranks, folder):
    first, second = two_ranks("plain_writers", folder)
    assert first["shown"] > 0
    assert second["shown"] == 0
    assert first["saves"].count("save") >= 2
    assert second["saves"] == []
    assert first["scalars"] > 0
    assert second["scalars"] == 0
    assert first["best"] == second["best"]
    assert first["loaded"] == second["loaded"]
    for name in ("log", "zero", "each-0", "each-1"):
        with (Path(folder) / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) == 3, name
    assert not first["lines"]
    classes = [line.split("`")[1] for line in second["lines"]]
    assert sorted(classes) == ["CSVLogger", "ModelCheckpoint", "TensorBoard"]
    for line in second["lines"]:
        assert "rank 0 alone writes" in line
        assert "kr.callbacks.EveryRank" in line


def test_keras_own_backup_goes_on_on_all_ranks(two_ranks, folder):
    assert only(two_ranks("plain_backup", folder)) == [2, 3]
    assert not (Path(folder) / "backup").exists()


def test_models_of_each_rank_are_saved_by_each(two_ranks, folder):
    assert only(two_ranks("models_of_ranks", folder))


def test_evaluate_and_predict_are_those_of_one_process(two_ranks):
    different, listed, errors = only(two_ranks("inference"))
    # What Keras makes of the loss of each output depends on how it has traced
    # the step: it weights batches by their size where that is in the trace.
    of_outputs = ("classes_loss", "size_loss")
    wrong = {
        kind: [each for each in found if each[0] not in of_outputs]
        for kind, found in different.items()
    }
    assert wrong == {kind: [] for kind in different}
    assert len(different) == 11
    assert len(listed) > 2
    unequal, empty, endless = errors
    assert "of shape (6, 10)" in unequal
    assert "arrays of one length above 0" in empty
    assert "needs `steps`" in endless


@pytest.mark.parametrize("name", ["maximum", "start"])
def test_a_metric_whose_state_is_no_sum_is_an_error(two_ranks, name):
    message = only(two_ranks("metric_state", name))
    assert "cannot be added up over ranks" in message
    assert "aggregation" in message
    if name == "maximum":
        assert "'largest' (class Extreme)" in message
    else:
        assert "'rows' starts at 1 and not at 0" in message


def test_metrics_are_combined_as_they_say(two_ranks):
    assert only(two_ranks("metric_state", "sum")) == [40.0, 40.0]
    for name in ("mean", "first"):
        assert all(v > 0 for v in only(two_ranks("metric_state", name)))


def test_normalization_by_the_batches_of_all_ranks(two_ranks):
    results = two_ranks("normalization")
    for key in ("wanted", "synchronized", "converted"):
        only([result[key][1] for result in results])
    for result in results:
        assert result["same"]
        assert result["classes"] == result["saved"] == 2
        for key in ("synchronized", "converted"):
            for a, b in zip(result[key][0], result["wanted"][0], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_one_bar_shows_all_ranks(two_ranks):
    for kind in SHOWN:
        first, second = two_ranks("shown", kind)
        assert second == "", kind
        if kind in ("off", "quiet"):
            assert first.count("\n") <= (kind == "off"), first
            continue
        assert ("samples/s" in first) == (kind != "keras"), first
        drawn = any(sign in first for sign in "\r\b\x1b")
        assert drawn == (kind in ("terminal", "keras")), first


def test_what_is_said_of_a_fit(two_ranks):
    lines = two_ranks("shown", "file")[0].splitlines()
    ours = [line for line in lines if line.startswith("keras_ring: ")]
    ranks, reduction, data, rate, batch, pace, communication, last = ours
    assert "2 ranks on 1 host" in ranks
    assert "through shared memory" in reduction
    assert "not split by kr.data.shard" in data
    assert rate.lower().endswith("sgd with a learning rate of 0.1")
    assert "2 x 4 = 8" in batch
    assert "20 steps of 8 in" in pace
    assert "of 2 ranks" in pace
    assert communication.startswith("keras_ring: Communication takes ")
    # Who is late, and why: the input pipeline that sleeps.
    assert "waited for rank 1" in last
    assert last.endswith("its input pipeline (data).")
    epochs = [line for line in lines if line.startswith("10/10")]
    assert len(epochs) == 2
    for line in epochs:
        # Figures of one line agree, as far as milliseconds are told.
        milliseconds, rate = re.search(
            r" - (\d+)ms/step - ([\d,.]+) samples/s", line
        ).groups()
        step = 8 / float(rate.replace(",", "")) * 1e3
        assert abs(step - float(milliseconds)) < 1, line


def test_it_is_said_which_part_of_the_data_a_rank_has(two_ranks, folder):
    first, second = two_ranks("parts_of_data", folder)
    assert {kind: line for kind, (line,) in first.items()} == {
        "arrays": "16 of 31 samples on each rank, 1 of them used twice",
        "dropped": "15 of 31 samples on each rank, 1 used by none",
        "even": "15 of 30 samples on each rank",
        "dataset": "16 of 31 elements on each rank, 1 of them used twice",
        "endless": "one in 2 elements on each rank",
        "files": "15 of 31 elements on each rank, 1 used by none",
        "batches": "3 of 5 batches on each rank, 1 of them used twice",
        "generator": "one in 2 elements on each rank",
        "own": "each rank's own, not split by kr.data.shard",
        "copied": "each rank's own, not split by kr.data.shard",
    }
    assert not any(second.values())


def test_one_rank_that_asks_is_shown_its_first_training():
    shown, steps = only(run_ranks(rank_fit.shown_to_one_rank, 1).values)
    assert shown.startswith("keras_ring: 1 rank on 1 host")
    assert "samples/s, up to" in shown
    assert "data:" not in shown
    assert steps == 1


def test_measuring_stops_no_training(two_ranks):
    """Whatever goes wrong with it, on one rank alone too."""
    shown = two_ranks("shown", "broken")[0]
    assert "Epoch 2/2" in shown
    assert "steps in" not in shown


def test_one_rank_alone_does_not_speak_for_all(two_ranks):
    shown = two_ranks("shown", "alone")[0]
    assert "20 steps of 4 in" in shown
    assert "waited for" not in shown
    assert "of 2 ranks" not in shown


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_the_input_pipeline_is_measured(two_ranks, steps_per_execution):
    results = two_ranks("input_pipeline", steps_per_execution)
    for is_same, samples, _, _ in results:
        assert is_same
        assert samples == 2 * 96
    times = only([times for _, _, times, _ in results])
    # Rank 1 sleeps for each batch, and both wait for that, but for a batch that
    # TensorFlow has prepared before.
    for rank in (0, 1):
        assert times["real"][rank] > 0.02
        assert times["synthetic"][rank] < 0.5 * times["real"][rank]
    assert times["data"][0] < 0.01 < times["data"][1]
    (_, _, _, first), (_, _, _, second) = results
    assert second == ""
    costs, *advice = first.splitlines()
    assert "the input pipeline costs" in costs
    assert "rank 1 waits most for it" in costs
    assert 1 <= len(advice) <= 4
