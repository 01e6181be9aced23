"""Decides when processes are started that join a job which runs."""

# In a row, which have ended before they were let in.
_MOST_FAILURES = 3


class Joiners:
    """The processes that are to join an elastic job.

    As many are started as the job has ranks too few, in the place of those that
    are lost. A process that ends before it is let in would do so again: after
    some of these, no more are started.

    Args:
        size: Integer, the number of ranks at the start of the job.
        most: Integer, the most ranks that the job is to have.
    """

    def __init__(self, size: int, most: int) -> None:
        self._next = size
        self._most = most
        self._failures = 0
        self._waiting: set[int] = set()

    @property
    def waiting(self) -> frozenset[int]:
        """The numbers of those that have started and have not been let in."""
        return frozenset(self._waiting)

    @property
    def may_come(self) -> bool:
        """True if others come when the job has too few ranks."""
        return bool(self._most) and self._failures < _MOST_FAILURES

    def start(self, members: int, room: int | None = None) -> tuple[int, ...]:
        """Returns the numbers of those to start now.

        Args:
            members: Integer, the number of ranks that the job has.
            room: Integer, the most that can be started. `None` for any number.
        """
        if not self.may_come:
            return ()
        missing = max(self._most - members - len(self._waiting), 0)
        if room is not None:
            missing = min(missing, room)
        numbers = tuple(range(self._next, self._next + missing))
        self._next += missing
        self._waiting.update(numbers)
        return numbers

    def close(self) -> None:
        """Starts no more of them."""
        self._most = 0

    def on_join(self, number: int) -> None:
        """Takes note that one has been let in."""
        self._waiting.remove(number)
        self._failures = 0

    def on_end(self, number: int, *, failed: bool = True) -> None:
        """Takes note that one has ended before it was let in.

        Args:
            number: Integer.
            failed: Boolean, whether it has itself. Another one may be lost with
                its host.
        """
        self._waiting.remove(number)
        self._failures += failed
