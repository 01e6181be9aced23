"""Answers of an agent that take time, computed in other threads."""

import os
import queue
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from keras_ring.launch.event_loop import EventLoop

_READ = 4096

_Asked = TypeVar("_Asked")
_AskedOf = TypeVar("_AskedOf", contravariant=True)


class AnswerLater(Protocol):
    """The type of `LateAnswers.answer_later`."""

    def __call__(
        self, ask: Callable[[_AskedOf], bytes], what: _AskedOf, /
    ) -> None:
        """Calls `ask` in a thread, and sends the message that it returns."""


class LateAnswers:
    """Threads that compute one answer each.

    Args:
        events: `EventLoop` in whose thread the answers are sent.
        send: Function that sends an encoded message to the launcher.
    """

    def __init__(
        self, events: EventLoop, send: Callable[[bytes], None]
    ) -> None:
        self._send = send
        self._ready: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        events.add(self._wake_read, self._send_ready, self._wake_read)

    def answer_later(
        self, ask: Callable[[_Asked], bytes], what: _Asked
    ) -> None:
        """Calls `ask` in a thread, and sends the message that it returns."""

        def run() -> None:
            self._ready.put(ask(what))
            os.write(self._wake_write, b".")

        threading.Thread(target=run, daemon=True).start()

    def _send_ready(self, wake: int) -> None:
        os.read(wake, _READ)
        while not self._ready.empty():
            self._send(self._ready.get())
