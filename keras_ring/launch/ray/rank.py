"""The rank in an actor of Ray, which is set up before TensorFlow's import."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from dataclasses import asdict
from typing import Any

from keras_ring.core.engines.invitations import Invitation, Meeting, invite
from keras_ring.protocol import error_file
from keras_ring.protocol.code_sources import Pickled
from keras_ring.protocol.error_file import RankError

# The kinds of answers of an actor, as `call` returns them.
VALUE, ERROR = "value", "error"


class Rank:
    """One rank of a job.

    Args:
        size: Integer, the number of ranks.
        rank: Integer, this rank.
    """

    def __init__(self, size: int, rank: int) -> None:
        self._size = size
        self._rank = rank
        self._listener: socket.socket | None = None
        # Resources that are held as long as the rank.
        self._held = contextlib.ExitStack()

    def invite(self, one_host: bool) -> str:
        """Listens as rank 0, and returns the invitation for the other ranks."""
        invitation, self._listener = self._held.enter_context(
            invite(os.environ, one_host=one_host)
        )
        return invitation.encode()

    def join(self, told: str) -> None:
        """Sets the variables of this rank from the invitation of rank 0."""
        met = Meeting(
            size=self._size,
            rank=self._rank,
            invitation=Invitation.decode(told),
            listener=self._listener,
        )
        os.environ.update(met.settings())

    def activate(self) -> tuple[str, Any]:
        """Turns on `--auto` in this process, and returns its error, if any."""
        try:
            importlib.import_module("keras_ring.auto")
            return VALUE, None
        except BaseException as error:
            told = _told(error)
            self._leave()
            return told

    def call(self, shared: Pickled) -> tuple[str, Any]:
        """Calls the function, and returns its result or its error.

        Args:
            shared: `Pickled` tuple of the function, its positional arguments
                and its keyword arguments.
        """
        try:
            function, args, kwargs = shared.load()
            return VALUE, function(*args, **kwargs)
        except BaseException as error:
            return _told(error)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Leaves the job, as the end of a program does."""
        from keras_ring import job

        job.shutdown()
        self._held.close()


def _told(error: BaseException) -> tuple[str, Any]:
    error_file.note(error)
    # A record of the job and not of Ray: it tells which rank failed first.
    return ERROR, asdict(RankError.of(error, error.__traceback__))
