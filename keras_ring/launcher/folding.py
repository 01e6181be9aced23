"""Shows a line that several ranks print alike once."""

import time
from collections import deque
from collections.abc import Callable, Hashable

# Ranks do the same at nearly the same time. Longer, and a line would come
# noticeably late.
_PATIENCE = 0.3
# Of lines that wait; more than that come from a program that prints a lot.
_MAX_WAITING = 1024


class _Group:
    """A line, and the ranks that have printed it."""

    def __init__(self, number: int, line: bytes, shown_by: float) -> None:
        self.number = number
        self.line = line
        self.shown_by = shown_by
        self.ranks: set[int] = set()


class Folding:
    """Holds lines back for a moment, and joins those of several ranks.

    The lines of one rank keep their order. All come out after 0.3 s at the
    latest, sooner if every rank has printed them.

    Args:
        num_ranks: Integer; with one rank nothing is held back.
        show: Is called with a line and its ranks, in the order to be shown.
        key: Returns what is equal in lines that count as alike.
        clock: Returns seconds.
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
        # Rank -> number of the last group that it is in.
        self._last: dict[int, int] = {}
        self._count = 0

    @property
    def deadline(self) -> float | None:
        """When `show_due` has something to do, by the clock."""
        return self._waiting[0].shown_by if self._waiting else None

    def add(self, rank: int, line: bytes) -> None:
        """Takes a line that a rank has printed."""
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
        """Shows what has waited for long enough."""
        now = self._clock()
        while self._waiting and self._waiting[0].shown_by <= now:
            self._show_first()

    def show_until(self, rank: int) -> None:
        """Shows all that a rank has printed, and what was printed before."""
        last = self._last.get(rank, -1)
        while self._waiting and self._waiting[0].number <= last:
            self._show_first()

    def show_all(self) -> None:
        """Shows all that waits."""
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
