"""What runs in an actor of Ray. Becomes a rank before it imports TensorFlow."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from dataclasses import asdict
from typing import Any

from keras_ring._engines.meeting import Invitation, Meeting, invite
from keras_ring._launch_protocol import error_file
from keras_ring._launch_protocol.code_sources import Pickled
from keras_ring._launch_protocol.error_file import RankError

# What an actor answers, as `call` returns it.
VALUE, ERROR = "value", "error"


class Rank:
    """One rank of a job.

    Args:
        size: Number of ranks.
        rank: Index of this one.
    """

    def __init__(self, size: int, rank: int) -> None:
        self._size = size
        self._rank = rank
        self._listener: socket.socket | None = None
        # As long as this process.
        self._held = contextlib.ExitStack()

    def invite(self, one_host: bool) -> str:
        """Listens, as rank 0; returns what the others are told."""
        invitation, self._listener = self._held.enter_context(
            invite(os.environ, one_host=one_host)
        )
        return invitation.encode()

    def join(self, told: str) -> None:
        """Learns from rank 0 where it is."""
        met = Meeting(
            size=self._size,
            rank=self._rank,
            invitation=Invitation.decode(told),
            listener=self._listener,
        )
        os.environ.update(met.settings())

    def activate(self) -> tuple[str, Any]:
        """Has this process train what is for one; returns the error of it."""
        try:
            importlib.import_module("keras_ring.auto")
            return VALUE, None
        except BaseException as error:
            told = _told(error)
            self._leave()
            return told

    def call(self, shared: Pickled) -> tuple[str, Any]:
        """Calls the function; returns its result, or the error of it.

        Args:
            shared: The function, its positional and its keyword arguments.
        """
        try:
            function, args, kwargs = shared.load()
            return VALUE, function(*args, **kwargs)
        except BaseException as error:
            return _told(error)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Tells the other ranks, as the end of a program does."""
        from keras_ring import job

        job.shutdown()
        self._held.close()


def _told(error: BaseException) -> tuple[str, Any]:
    error_file.note(error)
    # The job's own, not Ray's: it says which rank was first.
    return ERROR, asdict(RankError.of(error, error.__traceback__))
