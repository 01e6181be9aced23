"""`--auto` on PyTorch."""

from typing import ClassVar

import pytest

from tests.backends import auto_cases
from tests.backends.auto_cases import one_rank, ranks
from tests.pytorch import rank_auto

__all__ = ["one_rank", "ranks"]

pytestmark = pytest.mark.timeout(900)


class TestAuto(auto_cases.AutoCases):
    """Tests of all frameworks."""

    RANKS = rank_auto
    EXACT = (*auto_cases.EXACT, "loader")
    REFUSED: ClassVar = {
        **auto_cases.REFUSED,
        "own_optimizer": "makes a `torch.optim.SGD`",
        "compiled_step": "with `jit_compile=True`",
    }
