"""What a process waits for, and what is called when it comes.

One selector, of one thread. Whoever owns a loop decides how long it waits, and
what it does between two waits.
"""

import selectors
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

_Source = TypeVar("_Source")


class HasFileno(Protocol):
    """What has a descriptor."""

    def fileno(self) -> int:
        """Returns the descriptor."""


class Event(NamedTuple):
    """Something that is ready."""

    handle: Callable[[Any], None]
    source: Any


class EventLoop:
    """Waits for descriptors, and tells whose turn it is."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(
        self,
        file: int | HasFileno,
        handle: Callable[[_Source], None],
        source: _Source,
    ) -> None:
        """Waits from now on until there is something to read.

        Args:
            file: A descriptor, or what has one.
            handle: Called with `source` when the descriptor is ready.
            source: What is ready then.
        """
        self._selector.register(
            file, selectors.EVENT_READ, Event(handle, source)
        )

    def add_wake_up(self, file: HasFileno) -> None:
        """Ends waits while there is something to read, and calls nothing."""
        self.add(file, _do_nothing, file)

    def remove(self, file: int | HasFileno) -> None:
        """Waits for this no more, if it did."""
        if file in self._selector.get_map():
            self._selector.unregister(file)

    def want_to_read(
        self,
        fd: int,
        wanted: bool,
        handle: Callable[[_Source], None],
        source: _Source,
    ) -> None:
        """Waits for something to read, or does not, from now on."""
        self._want(fd, selectors.EVENT_READ, wanted, handle, source)

    def want_to_write(
        self,
        fd: int,
        wanted: bool,
        handle: Callable[[_Source], None],
        source: _Source,
    ) -> None:
        """Waits until bytes are taken, or does not, from now on."""
        self._want(fd, selectors.EVENT_WRITE, wanted, handle, source)

    def _want(
        self,
        fd: int,
        events: int,
        wanted: bool,
        handle: Callable[[_Source], None],
        source: _Source,
    ) -> None:
        known = fd in self._selector.get_map()
        if known and not wanted:
            self._selector.unregister(fd)
        elif wanted and not known:
            self._selector.register(fd, events, Event(handle, source))

    def wait(self, seconds: float | None) -> list[Event]:
        """Returns what is ready, once something is or the time is over.

        Args:
            seconds: How long to wait; None for no limit.
        """
        return [key.data for key, _ in self._selector.select(seconds)]

    def close(self) -> None:
        """Forgets everything."""
        self._selector.close()


def _do_nothing(source: object) -> None:
    """Whoever waits looks by itself."""
