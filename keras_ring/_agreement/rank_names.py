"""How ranks are named in errors and warnings about what they differ in."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 8
"""So many ranks are named, and of more only that there are more."""


def rank_list(ranks: Sequence[int]) -> str:
    """Returns ranks such as `"0, 3"`, or `"0, 1, 2, 3, 4, 5, 6, 7, ..."`."""
    more = ", ..." if len(ranks) > SHOWN else ""
    return ", ".join(str(rank) for rank in ranks[:SHOWN]) + more
