"""The output of ranks as JSON, an object on each line."""

import json
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from typing import Any

from keras_ring.launch import tensorflow_lines
from keras_ring.launch.output import Line
from keras_ring.protocol.log_source import LogSource, encode

# Fields that differ between records that ranks log alike.
_OF_ONE_RANK = ("time", "rank", "host", "pid", "step", "span_id")


class JsonFormat:
    """The output format for programs.

    Lines that are log records already, of keras_ring or of the program, stay
    unchanged. All others become the `message` of an object.

    Args:
        launcher: `LogSource` of the launcher.
    """

    def __init__(self, launcher: LogSource) -> None:
        self._launcher = launcher

    def recorder(
        self, rank: int, host: str, stream: str
    ) -> Callable[[bytes], Line]:
        """Returns a function that makes records of a rank's lines."""
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
        """Returns a record with the ranks that have printed it, if several."""
        if len(ranks) > 1:
            told = {**json.loads(line), "ranks": sorted(ranks)}
            line = encode(told).encode()
        return line + b"\n"

    def shown_out(self, line: bytes, rank: int) -> bytes:
        """Returns a record of one rank, whose `rank` it has already."""
        return self.shown(line, (rank,))

    def key(self, line: bytes) -> Hashable:
        """Returns the record without its time, process and the like."""
        told: dict[str, Any] = json.loads(line)
        for name in _OF_ONE_RANK:
            told.pop(name, None)
        message = str(told.pop("message", "")).encode()
        return tensorflow_lines.without_header(message), json.dumps(
            told, sort_keys=True
        )

    def of_agent(self, host: str, line: bytes) -> bytes:
        """Returns a record of a line that belongs to no rank."""
        source = replace(self._launcher, host=host)
        return source.printed(line, "stderr").encode() + b"\n"


def _log_record(line: bytes) -> dict[str, Any] | None:
    """Returns the fields of a line that is a log record in JSON, or `None`."""
    if not line.startswith(b"{"):
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(told, dict) and "time" in told and "level" in told:
        return told
    return None
