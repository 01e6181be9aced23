"""One thing to measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from keras_ring.bench.shapes import Shape

# By the name of a `keras_ring.Compression`.
WIRE_DTYPES = {"none": None, "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A set of tensors, and how they are reduced.

    Args:
        name: What the case is called; collectives are named by it.
        shapes: One per tensor.
        dtype: TensorFlow's name of the dtype.
        op: The name of a `keras_ring.ReduceOp`.
        grouped: Whether all tensors are one atomic operation, not one each.
        fresh: Whether the tensors are made in the step, as gradients are, so
            that an operation may reuse their memory. Else the caller holds
            them.
        compression: The name of a `keras_ring.Compression`.
    """

    name: str
    shapes: tuple[Shape, ...]
    dtype: str = "float32"
    op: str = "Sum"
    grouped: bool = False
    fresh: bool = False
    compression: str = "none"

    @property
    def num_bytes(self) -> int:
        """The bytes of one rank's tensors."""
        elements = sum(math.prod(shape) for shape in self.shapes)
        return elements * itemsize(self.dtype)

    @property
    def wire_dtype(self) -> str:
        """The dtype in which values travel."""
        narrow = WIRE_DTYPES[self.compression]
        if narrow is None or "float" not in self.dtype:
            return self.dtype
        return min(self.dtype, narrow, key=itemsize)

    @property
    def wire_bytes(self) -> int:
        """What one rank's tensors take on their way."""
        return (
            self.num_bytes * itemsize(self.wire_dtype) // itemsize(self.dtype)
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns what `from_dict` takes, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Case:
        """Returns the case that `to_dict` was called on."""
        shapes = tuple(tuple(shape) for shape in fields["shapes"])
        return cls(**{**fields, "shapes": shapes})


def itemsize(dtype: str) -> int:
    """Bytes of an element, by the number in the name of its dtype.

    Not through `numpy.dtype`, which does not know bfloat16.
    """
    return int("".join(filter(str.isdigit, dtype))) // 8
