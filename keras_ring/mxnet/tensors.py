"""NDArrays of MXNet as the native runtime needs them: by their addresses.

MXNet computes in threads of its own, and an NDArray may not have its values
yet when a function returns it. So a collective waits for the values of what it
sends, and for earlier readers and writers of what it writes to.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import mxnet as mx
import numpy as np

from keras_ring.core import operations

NDArray: TypeAlias = mx.nd.NDArray


class _Exported:
    """The memory of an NDArray, for NumPy."""

    def __init__(self, tensor: NDArray) -> None:
        # This waits until nobody reads or writes the memory.
        self._capsule = tensor.to_dlpack_for_write()

    def __dlpack__(self, stream: None = None) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # host memory


def address_of(tensor: NDArray) -> int:
    """Returns the address of a tensor, once its values are there."""
    if not tensor.size:
        return 0
    array = np.from_dlpack(_Exported(tensor))
    address: int = array.__array_interface__["data"][0]
    return address


def empty_like(tensor: NDArray) -> NDArray:
    """Returns an NDArray of the same shape and dtype, with any values."""
    return mx.nd.empty(tensor.shape, dtype=dtype_of(tensor))


def dense(tensor: NDArray) -> NDArray:
    """Returns the tensor itself, or a dense copy of a sparse one."""
    return tensor if tensor.stype == "default" else tensor.tostype("default")


def dtype_of(tensor: NDArray) -> np.dtype[Any]:
    """Returns the dtype of a tensor, as NumPy has it."""
    dtype: np.dtype[Any] = np.dtype(tensor.dtype)
    return dtype


def is_ndarray(value: object) -> bool:
    """Returns whether an object is an NDArray."""
    return isinstance(value, mx.nd.NDArray)


def check(tensor: Any, function: str) -> None:
    """Raises an error if collectives cannot take a tensor.

    Args:
        tensor: The argument of a collective.
        function: String, the name of the collective.

    Raises:
        TypeError: If it is no dense NDArray of a supported dtype in host
            memory.
    """
    if not is_ndarray(tensor):
        raise TypeError(
            f"`{function}` takes an `mx.nd.NDArray`. Received: {tensor!r} of "
            f"type {type(tensor).__name__}"
        )
    if tensor.stype != "default":
        raise TypeError(
            f"`{function}` takes dense NDArrays. Received one of storage type "
            f"{tensor.stype!r} and shape {tensor.shape}. Convert it by "
            "`tensor.tostype('default')`."
        )
    if tensor.context.device_type not in ("cpu", "cpu_pinned", "cpu_shared"):
        raise TypeError(
            f"`{function}` takes NDArrays in host memory. Received one on "
            f"{tensor.context}. Copy it by `tensor.as_in_context(mx.cpu())`."
        )
    operations.number_of(dtype_of(tensor))
