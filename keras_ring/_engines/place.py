"""The place of a process among those that were started together."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from keras_ring._engines.meeting import Meeting


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of this process, as an engine tells it.

    Args:
        engine: Name of the engine.
        size: Number of processes that were started together; None where the
            engine does not say.
        rank: Index of this one; None where the engine does not say.
        variables: What it was read from, with the values.
        address: `host:port` where process 0 can serve the others; None where
            the engine does not say.
        advice: What to do about what it does not say.
    """

    engine: str
    size: int | None
    rank: int | None
    variables: Mapping[str, str]
    address: str | None = None
    advice: str = ""


class Engine:
    """Something that starts processes."""

    # How a user calls it.
    name: str

    def place(self, environment: Mapping[str, str]) -> Place | None:
        """Returns what it tells this process, None if it tells nothing."""
        raise NotImplementedError

    def meet(
        self, place: Place, environment: Mapping[str, str]
    ) -> AbstractContextManager[Meeting] | None:
        """Brings the processes together by means of its own.

        Args:
            place: Of this process; size and rank are known.
            environment: Of this process.

        Returns:
            What holds the meeting open until the ranks have started; None if
            the engine has no such means, as most.

        Raises:
            StartError: If they do not come together, now or on entry.
        """
        return None


def number(environment: Mapping[str, str], name: str) -> int | None:
    """Returns the number that a variable holds, None if it holds none."""
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
