"""Keras on PyTorch trains on ranks as in one process."""

from tests.backends import cases
from tests.backends.cases import job, trained
from tests.pytorch import rank_keras

__all__ = ["job", "trained"]


class TestKeras(cases.KerasCases):
    """Tests of all frameworks, and of what PyTorch alone has."""

    NAME = "torch"
    RANKS = rank_keras
    FITS = cases.fits(rank_keras.OPTIMIZERS)
    CALLS = (*cases.CALLS, "unused", "refusals", "looked_at")
    NUM_WAYS = 8

    def test_a_layer_that_one_rank_uses(self, job):
        """Others have zeros for it, as in one process; not if none uses it."""
        every, always = [True] * 4, [True, True, False, False]
        for same, moved in job("unused"):
            assert same
            assert moved == [every, every, always]

    def test_gradients_of_one_rank_are_nobody_elses(self, job):
        assert set(job("looked_at")) == {True}

    def test_what_needs_tensorflow_says_so(self, job):
        for told in job("refusals"):
            assert "`kr.data.shard(files=...)` reads files by" in told
