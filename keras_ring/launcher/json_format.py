"""What ranks print, as JSON: an object on each line."""

import json
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from typing import Any

from keras_ring._launch_protocol.log_source import LogSource, encode
from keras_ring.launcher import tensorflow_lines
from keras_ring.launcher.output import Line

# What differs in lines that ranks log alike.
_OF_ONE_RANK = ("time", "rank", "host", "pid", "step", "span_id")


class JsonFormat:
    """For programs.

    Lines that are log records, of keras_ring or of the program, stay what they
    are; all others become the `message` of an object.

    Args:
        launcher: Whose job it is.
    """

    def __init__(self, launcher: LogSource) -> None:
        self._launcher = launcher

    def recorder(
        self, rank: int, host: str, stream: str
    ) -> Callable[[bytes], Line]:
        """Returns what makes records of a rank's lines."""
        source = self._launcher.of_rank(rank, host)

        def record(line: bytes) -> Line:
            logged = _log_record(line)
            if logged is not None:
                message = logged.get("message")
                text = message.encode() if isinstance(message, str) else line
                return Line(text, line)
            return Line(line, source.printed(line, stream).encode())

        return record

    def shown(self, line: bytes, ranks: Collection[int]) -> bytes:
        """Names the ranks, if there are several."""
        if len(ranks) > 1:
            told = {**json.loads(line), "ranks": sorted(ranks)}
            line = encode(told).encode()
        return line + b"\n"

    def shown_out(self, line: bytes, rank: int) -> bytes:
        """The record names the rank."""
        return self.shown(line, (rank,))

    def key(self, line: bytes) -> Hashable:
        """Leaves out when it was logged, and by which process."""
        told: dict[str, Any] = json.loads(line)
        for name in _OF_ONE_RANK:
            told.pop(name, None)
        message = str(told.pop("message", "")).encode()
        return tensorflow_lines.without_header(message), json.dumps(
            told, sort_keys=True
        )

    def of_agent(self, host: str, line: bytes) -> bytes:
        """Makes a record of a line that belongs to no rank."""
        source = replace(self._launcher, host=host)
        return source.printed(line, "stderr").encode() + b"\n"


def _log_record(line: bytes) -> dict[str, Any] | None:
    """Returns what a line says that is a log record in JSON already."""
    if not line.startswith(b"{"):
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(told, dict) and "time" in told and "level" in told:
        return told
    return None
