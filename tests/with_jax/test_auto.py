"""`--auto` on JAX."""

import pytest

from tests.backends import auto_cases
from tests.backends.auto_cases import one_rank, ranks
from tests.with_jax import rank_auto

__all__ = ["one_rank", "ranks"]

pytestmark = pytest.mark.timeout(900)


class TestAuto(auto_cases.AutoCases):
    """Tests of all frameworks."""

    RANKS = rank_auto
    EXACT = auto_cases.EXACT
    REFUSED = auto_cases.REFUSED
