"""Log lines as JSON objects, for the launcher and the ranks.

No package such as python-json-logger is used, because the launcher does not use
`logging`, and a package would save little code.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from keras_ring.protocol.trace_context import TraceContext

# Values of `KERAS_RING_LOG_FORMAT`.
TEXT = "text"
JSON = "json"
FORMATS = (TEXT, JSON)
# Bytes of a text in a line. A line with two such texts is shorter than the
# launcher's limit of 64 KiB.
_MAX_TEXT = 28_000


def timestamp(seconds: float | None = None) -> str:
    """Returns a time in the format of RFC 3339, in UTC.

    Args:
        seconds: Float, the seconds since the epoch. Defaults to now.
    """
    when = time.time() if seconds is None else seconds
    utc = datetime.fromtimestamp(when, timezone.utc)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True)
class LogSource:
    """The process that logs lines.

    Args:
        rank: Integer, its rank. `None` for the launcher.
        job: String, the name of the job. `None` if there is no job yet.
        trace: `TraceContext` with its span.
        host: String, the name of its host. Defaults to this host.
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
            message: String, the message.
            level: String, the severity in lower case.
            logger: String, the name of the logger.
            seconds: Float, the time in seconds since the epoch. Defaults to
                now.
            step: Integer, the number of training steps so far.
            exception: String, a traceback.
            more: Dictionary of further fields, which replace those of the same
                name.
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
            line: Bytes, the printed line; bytes that are not UTF-8 are escaped.
            stream: String, `"stdout"` or `"stderr"`.
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
        """Returns the source of a rank, from that of its launcher."""
        trace = self.trace and self.trace.of_rank(rank)
        return replace(self, rank=rank, host=host, trace=trace)


def encode(told: dict[str, object]) -> str:
    """Returns a JSON object on one line.

    The line is ASCII, because a stream may have any encoding.
    """
    return json.dumps(told, default=str)


def _bounded(text: str) -> str:
    """Returns a text that is valid Unicode and not too long."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    while len(json.dumps(clean)) > _MAX_TEXT:
        quarter = len(clean) // 4
        clean = f"{clean[:quarter]} [...] {clean[-quarter:]}"
    return clean
