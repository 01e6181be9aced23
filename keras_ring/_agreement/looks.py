"""When to look at what a rank trains, and at how much of it.

Ranks that do not train the same have come apart in all variables, as a rule,
and soon: one has another learning rate. So a look at a part of them tells as
well as one at all, and early looks must be many, and may be small.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from keras_ring._agreement.fingerprints import Piece, Pieces

_SHARE = 0.005  # of the time
_ALLOWANCE = 0.02  # seconds of looks, before they have to be rare
LONGEST = 1024  # periods between two looks that take no time
_LEAST = 512 << 10  # effort: of some 16 small variables


class Looks:
    """Looks at values ever more rarely, at as many as the time pays for.

    The first look, and that after `begin_again`, is at all values. Those after
    it come 1, 2, 4 ... periods after the one before, up to 1024: at some of
    the values, each time at others, at as many as half a hundredth of that time
    pays for, and at least at some 16 or 1 MiB. Once these looks have taken
    20 ms, they come so rarely that it pays for them.

    What is measured differs between ranks, so each says what it would do, and
    all do what the one does that would look least.
    """

    def __init__(self) -> None:
        self._gap = 1
        self._periods = 0
        self._due = 1
        # Of the next look: into how many parts all is divided, of which it is
        # one, and the piece that it begins with.
        self._parts = 1
        self._place = 0
        # Of all looks, and of those that need not be.
        self._spent = 0.0
        self._effort = 0
        self._spent_freely = 0.0
        self._must = True
        # When the last one was, and how long a period took before the last two:
        # in the shorter time there was nothing that is slow once.
        self._ended = time.perf_counter()
        self._since = 0
        self._took: list[float] = []

    def is_due(self, periods: int = 1) -> bool:
        """Counts periods that have ended; whether to look now."""
        self._periods += periods
        return self._periods >= self._due

    def begin_again(self) -> None:
        """Has the next period be looked at, all of it, and those from then on.

        All ranks must call this after the same number of periods.
        """
        self._due = 0
        self._gap = 1
        self._parts = 1
        self._must = True

    @contextmanager
    def looking(self, pieces: Pieces) -> Iterator[list[Piece]]:
        """Yields the pieces to look at now, and measures what that takes."""
        began = time.perf_counter()
        if not self._must:
            periods = max(1, self._periods - self._since)
            took = (began - self._ended) / periods
            self._took = [*self._took[-1:], took]
        part, effort = pieces.some(self._place, pieces.effort / self._parts)
        yield part
        self._ended = time.perf_counter()
        self._since = self._periods
        self._spent += self._ended - began
        if not self._must:
            self._spent_freely += self._ended - began
        self._effort += effort
        self._place = (self._place + len(part)) % len(pieces)

    def wishes(self, pieces: Pieces) -> tuple[int, int]:
        """Returns what this rank wishes of the next look.

        Returns:
            After how many periods, and into how many parts all is divided, of
            which it is one.
        """
        least = min(max(_LEAST, pieces.largest), pieces.effort)
        gap, effort = self._gap, float(least)
        if len(self._took) == 2:
            seconds = self._spent / self._effort  # of a unit of effort
            paid = _SHARE * min(self._took) / max(seconds, 1e-15)
            if self._spent_freely >= _ALLOWANCE:
                gap = max(gap, min(math.ceil(least / max(paid, 1e-9)), 1 << 30))
            effort = min(max(least, gap * paid), pieces.effort)
        return gap, math.ceil(pieces.effort / effort)

    def agreed(self, periods: int, parts: int) -> None:
        """Takes what all ranks do: the largest of their wishes."""
        self._due = self._periods + periods
        self._gap = min(2 * self._gap, LONGEST)
        self._parts = parts
        self._must = False
