"""Keras on any framework trains on ranks as in one process.

A folder of a framework has a class of its own, with the module of its ranks.
"""

import numpy as np
import pytest

from tests.harness import run_calls
from tests.tiers import few

# Where Keras itself computes in float64, and where it does not.
EXACT, ROUNDED = 1e-12, 2e-6


_RANKS = few([2, 3], "programs", 1)


@pytest.fixture(scope="class", params=_RANKS)
def trained(request):
    """Trains in one job; returns how far each fit is from one process."""
    made = request.cls
    calls = [("beside_one_process", *fit) for fit in made.FITS]
    return run_calls(made.RANKS, request.param, calls, fresh=True, deadline=100)


@pytest.fixture(scope="class", params=_RANKS)
def job(request, tmp_path_factory):
    """Runs the other calls of a class in one job; returns results."""
    folder = str(tmp_path_factory.mktemp("files"))
    made = request.cls
    with_files = ("resumed", "saved")
    calls = [
        *((name,) for name in made.CALLS),
        *((name, folder) for name in with_files),
    ]
    of_call = run_calls(
        made.RANKS, request.param, calls, fresh=True, deadline=100
    )

    def result(name):
        return of_call(name, *([folder] if name in with_files else []))

    return result


def fits(optimizers):
    """Returns the trainings of `test_fit_is_that_of_one_process`."""
    return {
        **{("dense", name): EXACT for name in optimizers},
        ("unbuilt", "sgd"): EXACT,
        ("converted", "sgd"): ROUNDED,
    }


CALLS = (
    "ways_to_train",
    "weighted",
    "own_parts",
    "scheduled",
    "mistakes",
    "imported",
)


class KerasCases:
    """Tests of one framework: `RANKS`, `FITS`, `CALLS` and `NUM_WAYS`."""

    def test_fit_is_that_of_one_process(self, trained):
        far = {}
        for fit, bound in self.FITS.items():
            for weights, metrics in trained("beside_one_process", *fit):
                if weights > bound or metrics > ROUNDED:
                    far[fit] = weights, metrics
        assert far == {}

    def test_other_ways_to_train(self, job):
        for apart in job("ways_to_train"):
            assert len(apart) == self.NUM_WAYS
            assert {n: far for n, far in apart.items() if far > EXACT} == {}

    def test_ranks_count_with_their_tokens(self, job):
        assert max(job("weighted")) < ROUNDED

    def test_what_each_rank_has_of_its_own(self, job):
        for same, differ in job("own_parts"):
            assert same == [True, True, True, False]
            assert differ

    def test_a_warm_up(self, job):
        for rates, same in job("scheduled"):
            assert rates[0] < 0.4
            assert rates[1:] == pytest.approx([0.4] * 3)
            assert same

    def test_mistakes_are_told(self, job):
        for told in job("mistakes"):
            plain, apart, drifted = (
                told[name] for name in ("plain", "apart", "drifted")
            )
            assert plain.startswith("LocalUpdateError: Optimizer 'sgd")
            assert apart.startswith("ConsistencyError: The ranks begin")
            assert drifted.startswith("ConsistencyError: The ranks do not")
            assert "kernel" in drifted
            assert "cannot be added up over ranks" in told["metric"]

    def test_an_interrupted_training_goes_on(self, job):
        """With the same random numbers."""
        assert set(job("resumed")) == {True}

    def test_files_and_predictions(self, job):
        for before, loaded, predicted, own, of_all in job("saved"):
            np.testing.assert_array_equal(before, loaded)
            np.testing.assert_allclose(before, predicted, rtol=1e-12)
            assert of_all == pytest.approx(own, rel=ROUNDED)

    def test_no_other_framework_is_imported(self, job):
        assert all(names == [] for names in job("imported"))
