"""Names of ranks in errors and warnings about differences between them."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 8
"""The number of ranks that a message names; the rest are only hinted at."""


def rank_list(ranks: Sequence[int]) -> str:
    """Returns ranks such as `"0, 3"`, or `"0, 1, 2, 3, 4, 5, 6, 7, ..."`."""
    more = ", ..." if len(ranks) > SHOWN else ""
    return ", ".join(str(rank) for rank in ranks[:SHOWN]) + more
