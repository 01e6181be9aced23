"""The identity of a process among those that were started together."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from keras_ring.core.engines.invitations import Meeting


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """The size, the rank and so on of this process, as an engine reads them.

    Args:
        engine: Name of the engine.
        size: Integer, the number of processes that were started together, or
            `None` if the engine does not tell it.
        rank: Integer, the index of this process, or `None` if the engine does
            not tell it.
        variables: The variables that they were read from, with values.
        address: String `host:port` on which process 0 can serve the others,
            or `None` if the engine does not tell it.
        advice: String, how the user can supply what the engine does not tell.
    """

    engine: str
    size: int | None
    rank: int | None
    variables: Mapping[str, str]
    address: str | None = None
    advice: str = ""


class Engine:
    """Something that starts processes."""

    # Name of the engine for users.
    name: str

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns what the engine says of this process, or `None`."""
        raise NotImplementedError

    def meet(
        self, identity: ProcessIdentity, environment: Mapping[str, str]
    ) -> AbstractContextManager[Meeting] | None:
        """Connects the processes by means of the engine.

        Args:
            identity: A `ProcessIdentity` with a known size and rank.
            environment: Environment of this process.

        Returns:
            A context manager that keeps the meeting open until the ranks have
            started, or `None` if the engine has no such means, as most have
            not.

        Raises:
            StartError: If the processes do not meet, now or on entry.
        """
        return None


def number(environment: Mapping[str, str], name: str) -> int | None:
    """Returns the number in a variable, or `None` if there is none."""
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
