"""The output of ranks as text, with the rank in front of each line."""

from collections.abc import Callable, Collection, Hashable
from datetime import datetime
from typing import Protocol

from keras_ring.launch import tensorflow_lines
from keras_ring.launch.output import Line
from keras_ring.launch.summary import rank_list


class LogFormat(Protocol):
    """The format in which lines of ranks are shown."""

    def recorder(
        self, rank: int, host: str, stream: str
    ) -> Callable[[bytes], Line] | None:
        """Returns a function that makes records of a rank's lines, or `None`.

        Args:
            rank: Integer, the rank.
            host: String, the name of its host.
            stream: String, `"stdout"` or `"stderr"`.
        """

    def shown(self, line: bytes, ranks: Collection[int]) -> bytes:
        """Returns a line, with its end, as it is shown.

        Args:
            line: Bytes, the line as a rank has printed it, or its record.
            ranks: The ranks that have printed it.
        """

    def shown_out(self, line: bytes, rank: int) -> bytes:
        """Returns a line of standard output, with its end, as it is shown.

        Args:
            line: Bytes, the line as the rank has printed it, or its record.
            rank: Integer, the rank.
        """

    def key(self, line: bytes) -> Hashable:
        """Returns a key that is equal for lines that count as alike."""

    def of_agent(self, host: str, line: bytes) -> bytes:
        """Returns a line of an agent, with its end, as it is shown."""


class TextFormat:
    """The output format for people.

    Args:
        timestamp: Boolean, whether each line starts with the local time.
        ranks_of_stdout: Boolean, whether lines of standard output name their
            rank.
    """

    def __init__(
        self, *, timestamp: bool = False, ranks_of_stdout: bool = True
    ) -> None:
        self._timestamp = timestamp
        self._ranks_of_stdout = ranks_of_stdout

    def recorder(
        self, rank: int, host: str, stream: str
    ) -> Callable[[bytes], Line] | None:
        """Returns `None`: lines are not changed."""
        return None

    def shown(self, line: bytes, ranks: Collection[int]) -> bytes:
        """Returns a line with the ranks in front."""
        return prefix(ranks, timestamp=self._timestamp) + line + b"\n"

    def shown_out(self, line: bytes, rank: int) -> bytes:
        """Returns a line with the rank in front, if ranks are shown."""
        return self.shown(line, (rank,) if self._ranks_of_stdout else ())

    def key(self, line: bytes) -> Hashable:
        """Returns the line without its time and process."""
        return tensorflow_lines.without_header(line)

    def of_agent(self, host: str, line: bytes) -> bytes:
        """Returns a line with the host in front."""
        return f"[{host}] ".encode() + line + b"\n"


def prefix(ranks: Collection[int], *, timestamp: bool) -> bytes:
    """Returns the prefix of a line.

    Args:
        ranks: The ranks that have printed it; empty if they are not shown.
        timestamp: Boolean, whether the prefix starts with the local time.
    """
    plain = f"[{rank_list(ranks)}] ".encode() if ranks else b""
    if not timestamp:
        return plain
    now = datetime.now().isoformat(sep=" ", timespec="milliseconds")
    return now.encode() + b" " + plain
