"""Keras on PyTorch trains on ranks as in one process."""

import sys

import numpy as np
import pytest

from tests.harness import examples, run_calls
from tests.pytorch import rank_keras
from tests.tiers import few

# Where Keras itself computes in float64, and where it does not.
_EXACT, _ROUNDED = 1e-12, 2e-6
_FITS = {
    **{("dense", name): _EXACT for name in rank_keras.OPTIMIZERS},
    ("unbuilt", "sgd"): _EXACT,
    ("converted", "sgd"): _ROUNDED,
}
_TOLD = ("unused", "weighted", "own_parts", "scheduled", "mistakes", "imported")


@pytest.fixture(scope="module", params=few([2, 3], "programs", 1))
def job(request, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("files"))
    calls = [
        *(("beside_one_process", *fit) for fit in _FITS),
        ("ways_to_train",),
        *((name,) for name in _TOLD),
        ("resumed", folder),
        ("saved", folder),
    ]
    of_call = run_calls(
        rank_keras, request.param, calls, fresh=True, deadline=110
    )

    def result(name, *arguments):
        if name in ("resumed", "saved"):
            arguments = (folder,)
        return of_call(name, *arguments)

    return result


@pytest.mark.parametrize("fit", _FITS)
def test_fit_is_that_of_one_process(job, fit):
    for weights, metrics in job("beside_one_process", *fit):
        assert weights < _FITS[fit]
        assert metrics < _ROUNDED


def test_other_ways_to_train(job):
    for apart in job("ways_to_train"):
        assert len(apart) == 7
        assert {name: far for name, far in apart.items() if far > _EXACT} == {}


def test_a_layer_that_one_rank_uses(job):
    """Others have zeros for it, as in one process; not if none uses it."""
    every, always = [True] * 4, [True, True, False, False]
    for same, moved in job("unused"):
        assert same
        assert moved == [every, every, always]


def test_ranks_count_with_their_tokens(job):
    assert max(job("weighted")) < _ROUNDED


def test_what_each_rank_has_of_its_own(job):
    for same, differ in job("own_parts"):
        assert same == [True, True, True, False]
        assert differ


def test_a_warm_up(job):
    for rates, same in job("scheduled"):
        assert rates[0] < 0.4
        assert rates[1:] == pytest.approx([0.4] * 3)
        assert same


def test_mistakes_are_told(job):
    for told in job("mistakes"):
        assert "`kr.data.shard(files=...)` reads files by" in told["files"]
        assert told["plain"].startswith("LocalUpdateError: Optimizer 'sgd")
        assert told["apart"].startswith("ConsistencyError: The ranks begin")
        assert told["drifted"].startswith("ConsistencyError: The ranks do not")
        assert "kernel" in told["drifted"]


def test_an_interrupted_training_goes_on(job):
    """With the same random numbers, which PyTorch's own generator draws."""
    assert set(job("resumed")) == {True}


def test_files_and_predictions(job):
    for before, loaded, predicted, own, of_all in job("saved"):
        np.testing.assert_array_equal(before, loaded)
        np.testing.assert_allclose(before, predicted, rtol=1e-12)
        assert of_all == pytest.approx(own, rel=_ROUNDED)


def test_no_other_framework_is_imported(job):
    assert all(names == [] for names in job("imported"))


def test_auto_is_refused_in_words(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    script = tmp_path / "train.py"
    script.write_text("import keras\nprint('it trains')\n")
    done = examples.run(
        *("-m", "keras_ring", "run", "--auto", "-np", "2", "--"),
        *(sys.executable, script),
    )
    assert done.returncode != 0
    assert "it trains" not in done.stdout
    assert "AutoError: Keras runs on 'torch' here" in done.stderr
    assert "kr.DistributedOptimizer(optimizer)" in done.stderr
