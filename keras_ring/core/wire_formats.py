"""Narrower number formats for values on their way between ranks."""

from __future__ import annotations

import dataclasses

# By wire type: the numbers of the native `KrCompression`.
_NATIVE = {None: 0, "float16": 1, "bfloat16": 2}


@dataclasses.dataclass(frozen=True)
class WireFormat:
    """A format that rounds values to a narrower type for the wire.

    Only floating-point values wider than `wire_dtype` are rounded; all others
    pass unchanged.

    Args:
        wire_dtype: String, the type on the wire, or `None` for no cast.
    """

    wire_dtype: str | None = None

    @property
    def native(self) -> int | None:
        """The number of the native `KrCompression`, or `None` if unknown."""
        return _NATIVE.get(self.wire_dtype)


class Compression:
    """The formats to choose from for the `compression` arguments.

    Each rank's values are rounded, the sum is computed in float32, and the
    result is rounded again. All ranks get the same bits. Numbers that are too
    large for the format become infinite, and too small ones become zero.

    Attributes:
        none: Format that sends values unchanged.
        fp16: Format that sends float32 and float64 as float16, with ten bits of
            precision and numbers up to 65504.
        bf16: Format that sends float32 and float64 as bfloat16, with seven bits
            of precision and the range of float32.
    """

    none = WireFormat()
    fp16 = WireFormat("float16")
    bf16 = WireFormat("bfloat16")
