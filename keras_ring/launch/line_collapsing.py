"""Shows a line once that several ranks print alike."""

import time
from collections import deque
from collections.abc import Callable, Hashable

# Seconds. Ranks do the same at nearly the same time, and with a longer wait a
# line would come noticeably late.
_PATIENCE = 0.3
# Lines that wait at most; only a program that prints a lot has more.
_MAX_WAITING = 1024


class _Group:
    """A line, and the ranks that have printed it."""

    def __init__(self, number: int, line: bytes, shown_by: float) -> None:
        self.number = number
        self.line = line
        self.shown_by = shown_by
        self.ranks: set[int] = set()


class Folding:
    """A buffer that holds lines briefly, and joins those of several ranks.

    The lines of one rank keep their order. A line is shown after 0.3 s at the
    latest, and sooner if every rank has printed it.

    Args:
        num_ranks: Integer, the number of ranks. With one rank, lines do not
            wait.
        show: Function called with each line and its ranks, in order.
        key: Function of a line. Lines with equal results count as alike.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self,
        num_ranks: int,
        show: Callable[[bytes, set[int]], None],
        key: Callable[[bytes], Hashable] = lambda line: line,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._num_ranks = num_ranks
        self._show = show
        self._key = key
        self._clock = clock
        self._waiting: deque[_Group] = deque()
        self._by_key: dict[Hashable, deque[_Group]] = {}
        # Number of the last group that a rank is in, by rank.
        self._last: dict[int, int] = {}
        self._count = 0

    @property
    def deadline(self) -> float | None:
        """The time when the next line is due, by the clock, or `None`."""
        return self._waiting[0].shown_by if self._waiting else None

    def add(self, rank: int, line: bytes) -> None:
        """Adds a line that a rank has printed."""
        last = self._last.get(rank, -1)
        alike = self._by_key.setdefault(self._key(line), deque())
        group = next((each for each in alike if each.number > last), None)
        if group is None:
            group = _Group(self._count, line, self._clock() + _PATIENCE)
            self._count += 1
            self._waiting.append(group)
            alike.append(group)
        group.ranks.add(rank)
        self._last[rank] = group.number
        while self._waiting and (
            len(self._waiting[0].ranks) == self._num_ranks
            or len(self._waiting) > _MAX_WAITING
        ):
            self._show_first()

    def show_due(self) -> None:
        """Shows the lines that have waited for long enough."""
        now = self._clock()
        while self._waiting and self._waiting[0].shown_by <= now:
            self._show_first()

    def show_until(self, rank: int) -> None:
        """Shows all lines of a rank, and the lines before them."""
        last = self._last.get(rank, -1)
        while self._waiting and self._waiting[0].number <= last:
            self._show_first()

    def show_all(self) -> None:
        """Shows all lines that wait."""
        while self._waiting:
            self._show_first()

    def _show_first(self) -> None:
        group = self._waiting.popleft()
        key = self._key(group.line)
        alike = self._by_key[key]
        alike.popleft()
        if not alike:
            del self._by_key[key]
        self._show(group.line, group.ranks)
