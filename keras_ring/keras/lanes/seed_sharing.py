"""Remembers whether ranks share the state of `keras.random`.

If they do, it draws other numbers on each rank in steps alone.
"""

from __future__ import annotations

_shared: list[bool] = []


def share() -> None:
    """Makes the state one that ranks share, from now on."""
    _shared.append(True)


def is_shared() -> bool:
    """Returns whether ranks share the state."""
    return bool(_shared)
