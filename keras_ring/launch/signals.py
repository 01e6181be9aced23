"""Turns signals into bytes that the event loop can wait for."""

import os
import signal
from types import FrameType, TracebackType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Signals passed on to the ranks, which write flight records or a timeline.
REPORTING = (signal.SIGUSR1, signal.SIGUSR2)


def _ignore(signum: int, frame: FrameType | None) -> None:
    """Does nothing: the signal is read from the wake-up pipe."""


class SignalPipe:
    """A pipe that collects signals while it is entered, in the main thread.

    A signal that was ignored before stays ignored, as SIGHUP under `nohup`.
    """

    def __init__(self) -> None:
        self._readable, self._writable = os.pipe()
        for fd in (self._readable, self._writable):
            os.set_blocking(fd, False)

    def __enter__(self) -> "SignalPipe":
        """Starts to collect signals."""
        self._wakeup = signal.set_wakeup_fd(
            self._writable, warn_on_full_buffer=False
        )
        self._before = {
            number: signal.signal(number, _ignore)
            for number in (*STOPPING, *REPORTING)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restores the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._readable)
        os.close(self._writable)

    def fileno(self) -> int:
        """Returns a descriptor that is readable when a signal has come."""
        return self._readable

    def read(self) -> list[int]:
        """Returns the signals that have come, in order."""
        try:
            return list(os.read(self._readable, 256))
        except BlockingIOError:
            return []
