"""Forwards the native runtime's log lines to the logs of the process."""

from __future__ import annotations

import logging
import threading
from typing import Any

from keras_ring import errors
from keras_ring.core import native, notices

# In the order of the native LogLevel.
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class LogForwarder:
    """A thread that forwards native log lines.

    The runtime's own threads must not wait for the interpreter lock, which a
    busy program may hold, so they only queue their lines.
    """

    def __init__(self) -> None:
        """Starts the thread.

        Raises:
            StartError: If the system cannot start another thread.
        """
        self._queue: Any = native.core().LogQueue()
        self._thread = threading.Thread(
            target=self._run, name="keras_ring-log", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            self._queue.close()
            raise errors.StartError(
                f"The thread for log lines could not be started ({error}). "
                "There may be too many processes and threads: see `ulimit -u`, "
                "or pids.max of the container."
            ) from None

    def stop(self) -> None:
        """Forwards the last lines and joins the thread."""
        self._queue.close()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while lines := self._queue.take():
            for level, line in lines:
                notices.log(_LEVELS[level], line)
