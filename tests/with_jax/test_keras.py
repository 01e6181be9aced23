"""Keras on JAX trains on ranks as in one process."""

from tests.backends import cases
from tests.backends.cases import job, trained
from tests.harness import run_ranks
from tests.with_jax import rank_keras

__all__ = ["job", "trained"]


class TestKeras(cases.KerasCases):
    """Tests of all frameworks, and of what JAX alone has."""

    NAME = "jax"
    RANKS = rank_keras
    FITS = cases.fits(rank_keras.OPTIMIZERS)
    CALLS = (*cases.CALLS, "drifted", "traces", "bfloat16", "overflow")
    NUM_WAYS = 10

    def test_a_change_on_one_rank_is_told(self, job):
        """Within an epoch, when variables themselves have no values."""
        for told in job("drifted"):
            assert told.startswith("The ranks do not train the same model")
            assert "bias" in told

    def test_a_step_is_traced_once(self, job):
        for first, last, counted, rows in job("traces"):
            assert last == first
            assert counted["samples"] == 3 * rows
            assert counted["fit_steps"] == 3 * -(-rows // 8)

    def test_a_job_that_another_binding_has_begun(self):
        result = run_ranks(rank_keras.of_another_binding, 2, fresh=True)
        assert result.values == ["LocalUpdateError"] * 2

    def test_mixed_precision(self, job):
        for same, learns in job("bfloat16"):
            assert same
            assert learns

    def test_an_overflow_of_one_rank_is_one_of_all(self, job):
        assert set(job("overflow")) == {(False, 1.0)}
