"""What launcher and agents say to each other, over the pipes of `ssh`.

A frame is a line of JSON and as many bytes after it as its `"bytes"` says.
Standard library only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An agent's first line. Before it, a shell of the other host may print what it
# likes.
GREETING = b"keras-ring agent 1\n"
# Seconds between two signs of life of the launcher. Agents answer them, so that
# it hears all of its agents at one time and may sleep between; one that is not
# spoken to says all the same that it lives.
PULSE = 1.0
# Longer lines come from nobody who keeps to this.
_MAX_LINE = 16 << 20
_MAX_PAYLOAD = 1 << 36


class FrameError(ValueError):
    """The other end does not keep to the protocol."""


@dataclass(frozen=True)
class Frame:
    """One message.

    Args:
        kind: What it is.
        fields: What it says.
        payload: The bytes that come with it.
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
    """Cuts what arrives into frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        # Where in it the next frame begins or goes on, and up to where there
        # is no end of its line.
        self._begin = 0
        self._searched = 0
        self._header: dict[str, Any] | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that these bytes complete.

        Raises:
            FrameError: If they are no frames.
        """
        self._waiting += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        # Once for all of them: what is left is moved to the front.
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
        # By a view: a slice of a bytearray would be a copy more.
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
