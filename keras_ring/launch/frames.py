"""Messages between the launcher and its agents, over the pipes of `ssh`.

A frame is a line of JSON, followed by as many bytes as its `"bytes"` says. This
module uses the standard library only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An agent's first line. Before it, a shell of the other host may print any
# text.
GREETING = b"keras-ring agent 1\n"
# Seconds between two signs of life of the launcher. Agents answer them, so that
# all answers arrive at one time and the launcher sleeps between. An agent that
# gets no messages sends signs of life by itself.
PULSE = 1.0
# Longer lines violate the protocol.
_MAX_LINE = 16 << 20
_MAX_PAYLOAD = 1 << 36


class FrameError(ValueError):
    """Raised if the other end violates the protocol."""


@dataclass(frozen=True)
class Frame:
    """One message.

    Args:
        kind: String, the kind of the message.
        fields: Dictionary, the content of the message.
        payload: Bytes that follow the line.
    """

    kind: str
    fields: Mapping[str, Any]
    payload: bytes = b""


def encode(kind: str, payload: bytes = b"", **fields: Any) -> bytes:
    """Returns the bytes of a frame."""
    header = {"kind": kind, **fields}
    if payload:
        header["bytes"] = len(payload)
    return json.dumps(header).encode() + b"\n" + payload


class FrameReader:
    """A parser that cuts received bytes into frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        # The index at which the next frame begins or continues, and the index
        # up to which its line has no end.
        self._begin = 0
        self._searched = 0
        self._header: dict[str, Any] | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that these bytes complete.

        Raises:
            FrameError: If the bytes are not frames.
        """
        self._waiting += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        # Once for all frames, because it moves the remaining bytes to the
        # front.
        del self._waiting[: self._begin]
        self._searched = max(0, self._searched - self._begin)
        self._begin = 0
        return frames

    def _next(self) -> Frame | None:
        if self._header is None:
            end = self._waiting.find(b"\n", max(self._begin, self._searched))
            if end < 0:
                self._searched = len(self._waiting)
                if self._searched - self._begin > _MAX_LINE:
                    raise FrameError("a line without end")
                return None
            self._header = _header(self._take(end))
            self._begin = end + 1
        end = self._begin + self._header.get("bytes", 0)
        if len(self._waiting) < end:
            return None
        payload = self._take(end)
        self._begin = end
        header, self._header = self._header, None
        kind = header.pop("kind")
        header.pop("bytes", None)
        return Frame(kind, header, payload)

    def _take(self, end: int) -> bytes:
        # Use a view, because a slice of a bytearray would be another copy.
        with memoryview(self._waiting) as view:
            return bytes(view[self._begin : end])


def _header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise FrameError(f"no message: {line[:80]!r}")
    length = header.get("bytes", 0)
    if not isinstance(length, int) or not 0 <= length <= _MAX_PAYLOAD:
        raise FrameError(f"a message of {length!r} bytes")
    return header
