"""What ranks print, as text: each line behind its rank."""

from collections.abc import Callable, Collection, Hashable
from datetime import datetime
from typing import Protocol

from keras_ring.launcher import tensorflow_lines
from keras_ring.launcher.output import Line
from keras_ring.launcher.summary import rank_list


class LogFormat(Protocol):
    """How lines of ranks are shown."""

    def recorder(
        self, rank: int, host: str, stream: str
    ) -> Callable[[bytes], Line] | None:
        """Returns what makes records of a rank's lines; None for nothing.

        Args:
            rank: Index of the rank.
            host: Name of its host.
            stream: `"stdout"` or `"stderr"`.
        """

    def shown(self, line: bytes, ranks: Collection[int]) -> bytes:
        """Returns a line, with its end, as it is shown.

        Args:
            line: As a rank has printed it, or the record of it.
            ranks: Those that have printed it.
        """

    def shown_out(self, line: bytes, rank: int) -> bytes:
        """Returns a line of standard output, with its end, as it is shown.

        Args:
            line: As the rank has printed it, or the record of it.
            rank: Index of the rank.
        """

    def key(self, line: bytes) -> Hashable:
        """Returns what is equal in lines that count as alike."""

    def of_agent(self, host: str, line: bytes) -> bytes:
        """Returns what an agent prints that is for nobody."""


class TextFormat:
    """For people.

    Args:
        timestamp: Whether the local time comes first.
        ranks_of_stdout: Whether lines of standard output name their rank.
    """

    def __init__(
        self, *, timestamp: bool = False, ranks_of_stdout: bool = True
    ) -> None:
        self._timestamp = timestamp
        self._ranks_of_stdout = ranks_of_stdout

    def recorder(
        self, rank: int, host: str, stream: str
    ) -> Callable[[bytes], Line] | None:
        """Lines stay what they are."""
        return None

    def shown(self, line: bytes, ranks: Collection[int]) -> bytes:
        """Puts the ranks in front of a line."""
        return prefix(ranks, timestamp=self._timestamp) + line + b"\n"

    def shown_out(self, line: bytes, rank: int) -> bytes:
        """Puts the rank in front of a line where there are several."""
        return self.shown(line, (rank,) if self._ranks_of_stdout else ())

    def key(self, line: bytes) -> Hashable:
        """Leaves out when it was logged, and by which process."""
        return tensorflow_lines.without_header(line)

    def of_agent(self, host: str, line: bytes) -> bytes:
        """Puts the host in front of a line."""
        return f"[{host}] ".encode() + line + b"\n"


def prefix(ranks: Collection[int], *, timestamp: bool) -> bytes:
    """Returns what goes in front of a line.

    Args:
        ranks: Those that have printed it; none where that goes without saying.
        timestamp: Whether the local time comes first.
    """
    plain = f"[{rank_list(ranks)}] ".encode() if ranks else b""
    if not timestamp:
        return plain
    now = datetime.now().isoformat(sep=" ", timespec="milliseconds")
    return now.encode() + b" " + plain
