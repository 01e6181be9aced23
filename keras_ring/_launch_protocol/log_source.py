"""Log lines as JSON objects, alike in the launcher and on the ranks.

Written here and not by a package such as python-json-logger: the launcher does
not use `logging`, and what a package would add to this is a dictionary.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from keras_ring._launch_protocol.trace_context import TraceContext

# Values of `KERAS_RING_LOG_FORMAT`.
TEXT = "text"
JSON = "json"
FORMATS = (TEXT, JSON)
# Bytes of a text in a line. With two of them a line is shorter than what the
# launcher takes for one (64 KiB).
_MAX_TEXT = 28_000


def timestamp(seconds: float | None = None) -> str:
    """Returns a time by RFC 3339, in UTC.

    Args:
        seconds: Since the epoch. Defaults to now.
    """
    when = time.time() if seconds is None else seconds
    utc = datetime.fromtimestamp(when, timezone.utc)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True)
class LogSource:
    """The process that says something.

    Args:
        rank: Its rank; None for the launcher.
        job: Name of the job, if there is one yet.
        trace: Its span.
        host: Name of its host. Defaults to this one.
    """

    rank: int | None = None
    job: str | None = None
    trace: TraceContext | None = None
    host: str = field(default_factory=socket.gethostname)

    def line(
        self,
        message: str,
        *,
        level: str,
        logger: str,
        seconds: float | None = None,
        step: int | None = None,
        exception: str | None = None,
        more: dict[str, object] | None = None,
    ) -> str:
        """Returns a log line, without an end of line.

        Args:
            message: What is said.
            level: How severe it is, in lower case.
            logger: Who says it.
            seconds: When, since the epoch. Defaults to now.
            step: Number of training steps that were done.
            exception: A traceback.
            more: Further keys; they come before those of the same name.
        """
        told: dict[str, object] = {
            "time": timestamp(seconds),
            "level": level,
            "rank": self.rank,
            "host": self.host,
            "pid": os.getpid(),
            "job": self.job,
            "step": step,
            "logger": logger,
            "message": _bounded(message),
            "trace_id": self.trace and self.trace.trace_id,
            "span_id": self.trace and self.trace.span_id,
        }
        if exception:
            told["exception"] = _bounded(exception)
        return encode({**told, **(more or {})})

    def printed(self, line: bytes, stream: str) -> str:
        """Returns a line that a program has printed, as an object.

        Args:
            line: What was printed; what is not UTF-8 is escaped.
            stream: `"stdout"` or `"stderr"`.
        """
        return encode(
            {
                "time": timestamp(),
                "rank": self.rank,
                "host": self.host,
                "job": self.job,
                "stream": stream,
                "message": line.decode("utf-8", "backslashreplace"),
                "trace_id": self.trace and self.trace.trace_id,
                "span_id": self.trace and self.trace.span_id,
            }
        )

    def of_rank(self, rank: int, host: str) -> LogSource:
        """Returns that of a rank of the job whose launcher this is."""
        trace = self.trace and self.trace.of_rank(rank)
        return replace(self, rank=rank, host=host, trace=trace)


def encode(told: dict[str, object]) -> str:
    """Returns an object of JSON on one line, in ASCII.

    ASCII, as a stream may have any encoding.
    """
    return json.dumps(told, default=str)


def _bounded(text: str) -> str:
    """Returns a text without what is no character, and not too long."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    while len(json.dumps(clean)) > _MAX_TEXT:
        quarter = len(clean) // 4
        clean = f"{clean[:quarter]} [...] {clean[-quarter:]}"
    return clean
