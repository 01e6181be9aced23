"""Narrower number formats for values on their way between ranks."""

from __future__ import annotations

import dataclasses

# By wire type: the numbers of the native `KrCompression`.
_NATIVE = {None: 0, "float16": 1, "bfloat16": 2}


@dataclasses.dataclass(frozen=True)
class WireFormat:
    """Rounds values to a narrower type for the wire.

    Only floating-point values wider than `wire_dtype` are rounded; all others
    pass unchanged.

    Args:
        wire_dtype: String, the type on the wire, or `None` for no cast.
    """

    wire_dtype: str | None = None

    @property
    def native(self) -> int | None:
        """The number of the native `KrCompression`, `None` if there is none."""
        return _NATIVE.get(self.wire_dtype)


class Compression:
    """The formats to choose from for the `compression` arguments.

    Each rank's values are rounded, the sum is taken in float32, and the result
    is rounded again. All ranks get the same bits. Numbers that are too large
    for the format become infinite; those too small become zero.

    Attributes:
        none: Values travel as they are.
        fp16: Float32 and float64 travel as float16: ten bits of precision,
            nothing above 65504.
        bf16: Float32 and float64 travel as bfloat16: seven bits of precision,
            the range of float32.
    """

    none = WireFormat()
    fp16 = WireFormat("float16")
    bf16 = WireFormat("bfloat16")
