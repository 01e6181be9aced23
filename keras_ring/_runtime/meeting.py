"""Small exchanges of ranks that TensorFlow takes no part in.

A collective of TensorFlow has it set up its devices, which a program may want
to configure first, and cannot be left once it waits. These wait for as long as
they are told.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._runtime import native, topology
from keras_ring.errors import JobEndedError

_LIBRARY = Path(__file__).resolve().parents[1] / "libkeras_ring.so"
# Of csrc/capi/keras_ring.h.
_ALLREDUCE, _BROADCAST = 0, 2
_MIN, _MAX = 2, 3
# Codes of a status: CANCELLED, FAILED_PRECONDITION, UNAVAILABLE.
_OVER = (1, 9, 14)
_Done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class _TensorSpec(ctypes.Structure):
    _fields_ = (
        ("dtype", ctypes.c_int32),
        ("num_dimensions", ctypes.c_int32),
        ("dimensions", ctypes.POINTER(ctypes.c_int64)),
    )


class _RequestSpec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_bytes", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("reduce_op", ctypes.c_int32),
        ("compression", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("root", ctypes.c_int32),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("splits", ctypes.POINTER(ctypes.c_int64)),
        ("num_splits", ctypes.c_size_t),
        ("tensors", ctypes.POINTER(_TensorSpec)),
        ("num_tensors", ctypes.c_size_t),
    )


class _Operation(ctypes.Structure):
    _fields_ = (
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
        ("done", _Done),
        ("allocate", ctypes.c_void_p),
        ("device_ordinal", ctypes.c_int32),
        ("wait_until_ready", ctypes.c_void_p),
    )


# What the runtime may still write to, of exchanges that were not waited for.
_pending: set[_Exchange] = set()


class Meeting:
    """Tells whether all ranks have come with the same.

    Args:
        name: String, the same on all ranks, of which one is under way.
        what: String, what this rank has come with.
    """

    def __init__(self, name: str, what: str) -> None:
        digest = hashlib.sha256(what.encode(errors="replace")).digest()
        self._parts = [
            _Exchange(
                f"{name}/{extreme}",
                np.frombuffer(digest, np.uint8),
                _ALLREDUCE,
                reduce_op,
            )
            for extreme, reduce_op in (("least", _MIN), ("most", _MAX))
        ]

    def wait(self, seconds: float | None) -> bool:
        """Waits for the others; returns whether all have come.

        Args:
            seconds: Number, for how long; `None` for as long as it takes.

        Raises:
            JobEndedError: If ranks meet no more.
        """
        return all(each.wait(seconds) for each in self._parts)

    def is_same(self) -> bool:
        """Whether all have come with the same. They must have come."""
        least, most = self._parts
        return bool(np.array_equal(least.output, most.output))


def bytes_of_rank_0(data: bytes, name: str) -> bytes:
    """Returns the bytes that rank 0 has. All ranks must call this.

    Args:
        data: That of rank 0 counts.
        name: String, the same on all ranks.

    Raises:
        JobEndedError: If it cannot be had any more.
    """
    length = _broadcast(np.array([len(data)], np.int64), f"{name}/length")
    if topology.rank() > 0:
        data = bytes(int(length[0]))
    return _broadcast(np.frombuffer(data, np.uint8), f"{name}/data").tobytes()


def _broadcast(values: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    exchange = _Exchange(name, values, _BROADCAST)
    exchange.wait(None)
    return exchange.output


class _Exchange:
    """One collective over memory of the host, which begins at once."""

    def __init__(
        self,
        name: str,
        values: npt.NDArray[Any],
        kind: int,
        reduce_op: int = 0,
    ) -> None:
        self._input = np.ascontiguousarray(values)
        self.output = np.zeros_like(self._input)
        self._is_done = threading.Event()
        self._failure: Exception | None = None
        self._call = _Done(self._end)
        self._inputs = (ctypes.c_void_p * 1)(self._input.ctypes.data)
        self._outputs = (ctypes.c_void_p * 1)(self.output.ctypes.data)
        operation = _Operation(
            inputs=self._inputs, outputs=self._outputs, done=self._call
        )
        request = _request(name, self._input, kind, reduce_op)
        _pending.add(self)
        try:
            refused = _library().KrEnqueue(
                _lookup(), request, ctypes.byref(operation)
            )
        finally:
            _library().KrRequestFree(request)
        if refused:
            _pending.discard(self)
            error = _error_of(refused)
            _library().KrStatusFree(refused)
            raise error

    def wait(self, seconds: float | None) -> bool:
        """Waits until it has ended; returns whether it has."""
        if not self._is_done.wait(seconds):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def _end(self, context: Any, status: Any) -> None:
        """Called by a thread of the runtime."""
        del context
        if status:
            self._failure = _error_of(status)
        _pending.discard(self)
        self._is_done.set()


def _request(
    name: str, values: npt.NDArray[Any], kind: int, reduce_op: int
) -> ctypes.c_void_p:
    spec = _RequestSpec()
    _library().KrRequestSpecInit(ctypes.byref(spec))
    encoded = name.encode()
    spec.name, spec.name_bytes = encoded, len(encoded)
    spec.kind, spec.reduce_op = kind, reduce_op
    dimensions = (ctypes.c_int64 * 1)(len(values))
    tensor = _TensorSpec(_dtypes().index(values.dtype.name), 1, dimensions)
    spec.tensors, spec.num_tensors = ctypes.pointer(tensor), 1
    request = ctypes.c_void_p()
    refused = _library().KrRequestCreate(
        ctypes.byref(spec), ctypes.byref(request)
    )
    if refused:
        raise _error_of(refused)
    return request


def _error_of(status: Any) -> Exception:
    text = bytes(_library().KrStatusMessage(status)).decode(errors="replace")
    if _library().KrStatusCode(status) in _OVER:
        return JobEndedError(text)
    return RuntimeError(text)


@functools.cache
def _dtypes() -> list[str]:
    return [str(row[0]) for row in native.core().dtypes()]


@functools.cache
def _lookup() -> ctypes.c_void_p:
    # Of all ranks.
    return ctypes.c_void_p(_library().KrRuntimeLookupCreate(0))


@functools.cache
def _library() -> ctypes.CDLL:
    native.core()
    library = ctypes.CDLL(str(_LIBRARY))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    for name, result, arguments in (
        ("KrStatusCode", ctypes.c_int32, [pointer]),
        ("KrStatusMessage", ctypes.c_char_p, [pointer]),
        ("KrStatusFree", None, [pointer]),
        ("KrRequestSpecInit", None, [pointer]),
        ("KrRequestCreate", pointer, [pointer, pointer]),
        ("KrRequestFree", None, [pointer]),
        ("KrRuntimeLookupCreate", pointer, [size]),
        ("KrEnqueue", pointer, [pointer, pointer, pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
