"""A case to measure: tensors and the way to reduce them."""

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
    """A set of tensors, and the settings of their reduction.

    Args:
        name: Name of the case, from which collectives are named.
        shapes: The shape of each tensor.
        dtype: TensorFlow's name of the dtype.
        op: The name of a `keras_ring.ReduceOp`.
        grouped: Boolean, whether all tensors are reduced by one atomic
            operation, instead of one operation each.
        fresh: Boolean, whether the tensors are made in the step, as gradients
            are, so that an operation may reuse their memory. Otherwise the
            caller holds them.
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
        """Size of one rank's tensors, in bytes."""
        elements = sum(math.prod(shape) for shape in self.shapes)
        return elements * itemsize(self.dtype)

    @property
    def wire_dtype(self) -> str:
        """The dtype of values on the wire."""
        narrow = WIRE_DTYPES[self.compression]
        if narrow is None or "float" not in self.dtype:
            return self.dtype
        return min(self.dtype, narrow, key=itemsize)

    @property
    def wire_bytes(self) -> int:
        """Size of one rank's tensors on the wire, in bytes."""
        return (
            self.num_bytes * itemsize(self.wire_dtype) // itemsize(self.dtype)
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the case as a dictionary for JSON and `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Case:
        """Returns the case that `to_dict` has encoded."""
        shapes = tuple(tuple(shape) for shape in fields["shapes"])
        return cls(**{**fields, "shapes": shapes})


def itemsize(dtype: str) -> int:
    """Returns the bytes of an element, by the number in the dtype's name.

    It does not use `numpy.dtype`, which does not know bfloat16.
    """
    return int("".join(filter(str.isdigit, dtype))) // 8
