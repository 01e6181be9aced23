"""The events that a process waits for, and their handlers.

A loop has one selector and belongs to one thread. Its owner decides how long it
waits, and what happens between two waits.
"""

import selectors
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

_Source = TypeVar("_Source")


class HasFileno(Protocol):
    """An object with a file descriptor."""

    def fileno(self) -> int:
        """Returns the descriptor."""


class Event(NamedTuple):
    """A handler, and the source that is ready for it."""

    handle: Callable[[Any], None]
    source: Any


class EventLoop:
    """A selector that returns the handlers of ready descriptors."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(
        self,
        file: int | HasFileno,
        handle: Callable[[_Source], None],
        source: _Source,
    ) -> None:
        """Registers a descriptor, to wait for something to read.

        Args:
            file: Integer, a descriptor, or an object that has one.
            handle: Function to call with `source` when there is something to
                read.
            source: Argument of `handle`.
        """
        self._selector.register(
            file, selectors.EVENT_READ, Event(handle, source)
        )

    def add_wake_up(self, file: HasFileno) -> None:
        """Registers a file that ends waits, without a handler."""
        self.add(file, _do_nothing, file)

    def remove(self, file: int | HasFileno) -> None:
        """Stops waiting for a file, if it is registered."""
        if file in self._selector.get_map():
            self._selector.unregister(file)

    def want_to_read(
        self,
        fd: int,
        wanted: bool,
        handle: Callable[[_Source], None],
        source: _Source,
    ) -> None:
        """Starts or stops to wait for something to read."""
        self._want(fd, selectors.EVENT_READ, wanted, handle, source)

    def want_to_write(
        self,
        fd: int,
        wanted: bool,
        handle: Callable[[_Source], None],
        source: _Source,
    ) -> None:
        """Starts or stops to wait until the descriptor takes bytes."""
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
        """Waits, and returns the events that are ready.

        Args:
            seconds: Float, the longest time to wait; `None` for no limit.

        Returns:
            List of `Event`s, empty if the time is over.
        """
        return [key.data for key, _ in self._selector.select(seconds)]

    def close(self) -> None:
        """Closes the selector."""
        self._selector.close()


def _do_nothing(source: object) -> None:
    """Does nothing: the owner of the loop reads the file itself."""
