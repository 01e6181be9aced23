"""Calls that a callback needs before it goes on at the next rank 0.

An elastic job may lose the rank that writes for all. The callback of the rank
that takes its place has not been called until then: it has no model, and no
open file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any


class MissedCalls:
    """The calls that a callback has not got on this rank.

    Kept are those that later ones need: its parameters, its model, and the
    begins of what has not ended, such as the training and the epoch.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, Callable[[], Any]]] = []
        self._counts: Counter[str] = Counter()

    def add(self, name: str, call: Callable[[], Any]) -> None:
        """Takes note of a call.

        Args:
            name: String, the name of the method, such as `"on_epoch_begin"`.
            call: Function without arguments that makes the call.
        """
        self._counts[name] += 1
        is_end = name.endswith("_end")
        begin = f"{name.removesuffix('end')}begin" if is_end else name
        # With it ends what has begun within it.
        for index, (each, _) in enumerate(self._open):
            if each == begin:
                del self._open[index:]
                break
        if name.endswith("_begin") or name.startswith("set_"):
            self._open.append((name, call))

    def ended(self, name: str) -> int:
        """Returns how often a method was called for what has ended since."""
        is_open = any(each == name for each, _ in self._open)
        return self._counts[name] - is_open

    def take(self) -> list[tuple[str, Callable[[], Any]]]:
        """Returns the calls to make, by name, in their order; once."""
        taken, self._open = self._open, []
        return taken
