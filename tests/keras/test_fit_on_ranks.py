"""Programs for one process, on ranks: callbacks, metrics, layers, inference."""

import csv
from pathlib import Path

import numpy as np
import pytest
import rank_fit

from tests.harness import only, run_calls

pytestmark = pytest.mark.timeout(900)


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
