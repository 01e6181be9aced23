"""The schedule and size of the comparisons of variables between ranks.

Ranks that train differently, for example with another learning rate, usually
differ in all variables, and soon. So looking at a part of the variables tells
as much as looking at all, and early looks must be frequent but may be small.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from keras_ring.keras.agreement.fingerprints import Piece, Pieces

_SHARE = 0.005  # of the time may be spent on looks
_ALLOWANCE = 0.02  # seconds that looks may take before they become rare
LONGEST = 1024  # periods between two looks whose cost is negligible
_LEAST = 512 << 10  # effort of the smallest look, about 16 small variables


class Looks:
    """A schedule of looks at values, ever rarer, with a limited cost.

    The first look, and the first after `begin_again`, is at all values. Later
    looks come 1, 2, 4 ... up to 1024 periods after the one before. Each covers
    other values: as many as can be read in 0.5 % of the time since the look
    before, and at least about 16 small variables or one piece of 1 MiB. Once
    these looks have taken 20 ms, they become so rare that they take no more
    than 0.5 % of the time.

    Measured times differ between ranks, so each rank tells its wishes, and all
    follow the rank that would look least.
    """

    def __init__(self) -> None:
        self._gap = 1
        self._periods = 0
        self._due = 1
        # The next look covers one of so many parts of all values, and begins
        # with this piece.
        self._parts = 1
        self._first_piece = 0
        # Seconds and effort of all looks, and seconds of the optional ones.
        self._spent = 0.0
        self._effort = 0
        self._spent_freely = 0.0
        self._must = True
        # The end of the last look, in seconds and in periods, and the seconds
        # of a period before each of the last two looks. The shorter of these
        # is free of work that is slow only once.
        self._ended = time.perf_counter()
        self._since = 0
        self._took: list[float] = []

    def is_due(self, periods: int = 1) -> bool:
        """Counts periods that have ended, and returns whether to look now."""
        self._periods += periods
        return self._periods >= self._due

    def begin_again(self) -> None:
        """Restarts the schedule with a look at all values in the next period.

        All ranks must call this after the same number of periods.
        """
        self._due = 0
        self._gap = 1
        self._parts = 1
        self._must = True

    @contextmanager
    def looking(self, pieces: Pieces) -> Iterator[list[Piece]]:
        """Yields the pieces to look at now, and measures the time of the look.

        Args:
            pieces: The `Pieces` of all values.
        """
        began = time.perf_counter()
        if not self._must:
            periods = max(1, self._periods - self._since)
            took = (began - self._ended) / periods
            self._took = [*self._took[-1:], took]
        part, effort = pieces.some(
            self._first_piece, pieces.effort / self._parts
        )
        yield part
        self._ended = time.perf_counter()
        self._since = self._periods
        self._spent += self._ended - began
        if not self._must:
            self._spent_freely += self._ended - began
        self._effort += effort
        end = self._first_piece + len(part)
        self._first_piece = end % len(pieces)

    def wishes(self, pieces: Pieces) -> tuple[int, int]:
        """Returns what this rank wishes for the next look.

        Args:
            pieces: The `Pieces` of all values.

        Returns:
            A tuple: the number of periods until the next look, and the number
            of parts that all values are divided into, of which it covers one.
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
        """Sets the next look to the largest wishes of all ranks.

        Args:
            periods: Integer, the number of periods until the next look.
            parts: Integer, the number of parts of which it covers one.
        """
        self._due = self._periods + periods
        self._gap = min(2 * self._gap, LONGEST)
        self._parts = parts
        self._must = False
