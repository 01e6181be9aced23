"""The place of a program at which the ranks of its job let others in.

Those come in at one place, as all ranks know without asking each other: in the
function of `kr.elastic.run` if the program has one, else in its first `fit`
over `kr.data.batches`.
"""

from __future__ import annotations


class Places:
    """The places of one program."""

    def __init__(self) -> None:
        self._has_function = False
        self._had_fit = False

    def note_function(self) -> None:
        """Takes note of a function of `kr.elastic.run`."""
        self._has_function = True

    def take_fit(self) -> bool:
        """Returns whether a `fit` that others could join is the place."""
        is_place = not (self._has_function or self._had_fit)
        self._had_fit = True
        return is_place


places = Places()
