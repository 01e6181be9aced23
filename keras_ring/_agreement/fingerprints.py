"""Fingerprints of the values of variables, which ranks compare.

They are checksums, which are made at several times the speed of a cryptographic
hash: differences between ranks are accidents. A variable of TensorFlow is read
by the operation alone, and its bits where they lie: what `tf.Variable` and
`keras.Variable` do around that takes ten times as long.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from keras_ring._keras import compat
from keras_ring._launch_protocol import cores
from keras_ring._ops import tensors
from keras_ring._runtime import topology
from keras_ring._typing import Variable

DIGEST_BYTES = 16
_PIECE = 1 << 20  # bytes of which there is one checksum
_THREADED = 256 << 10  # bytes that are worth a thread
# Reading a variable takes as long as the checksum of so many bytes.
_BYTES_OF_A_READ = 32 << 10

_Bytes = Any  # an array of `uint8`
_Value = Any  # an array, or a tensor


class Piece(NamedTuple):
    """A part of the values of some variables.

    Args:
        place: The place of its variable among them.
        begin: Of the part, in bytes; `None` of a variable in one piece.
        end: Behind the part.
    """

    place: int
    begin: int | None = None
    end: int | None = None


class Pieces:
    """The values of some variables, in pieces that are read one by one.

    Args:
        variables: The variables.

    Attributes:
        effort: Integer, what it costs to read all of them.
        largest: Integer, that of the piece that costs most.
    """

    def __init__(self, variables: Iterable[Variable]) -> None:
        found: list[tuple[Piece, int]] = []
        for place, variable in enumerate(variables):
            size = tensors.num_bytes(variable) or 0
            for begin in range(0, max(1, size), _PIECE):
                end = min(begin + _PIECE, size)
                is_one = size <= _PIECE
                piece = Piece(place) if is_one else Piece(place, begin, end)
                found.append((piece, end - begin + _BYTES_OF_A_READ))
        # In some order, the same on all ranks, so that those that follow each
        # other are of all kinds: not of what the optimizer remembers alone.
        random.Random(0).shuffle(found)
        self._pieces = [piece for piece, _ in found]
        self._efforts = [effort for _, effort in found]
        self.effort = sum(self._efforts)
        self.largest = max(self._efforts, default=0)

    def __len__(self) -> int:
        return len(self._pieces)

    def some(self, begin: int, effort: float) -> tuple[list[Piece], int]:
        """Returns pieces from one on, around the end, and what they cost.

        Args:
            begin: Integer, the number of the first.
            effort: Float, how much they are to cost at least, if there is as
                much.
        """
        if effort >= self.effort:
            return self._pieces, self.effort
        found: list[Piece] = []
        cost = 0
        while cost < effort and len(found) < len(self):
            at = (begin + len(found)) % len(self)
            found.append(self._pieces[at])
            cost += self._efforts[at]
        return found, cost


def of_pieces(
    variables: Sequence[Variable],
    pieces: Sequence[Piece],
    values: Sequence[_Value] | None = None,
) -> bytes | None:
    """Returns the fingerprint of pieces of the values of variables.

    Args:
        variables: The variables.
        pieces: Of their `Pieces`.
        values: Their values. Defaults to those that they have now.

    Returns:
        Bytes; `None` if one of the variables has no value.
    """
    checksums = _checksums(
        _of_piece(
            value_of(variables[each.place])
            if values is None
            else values[each.place],
            each,
        )
        for each in pieces
    )
    if values is None:
        # It is 0 of no bytes, which are read of what has no value.
        doubtful = [
            compat.tf_variable(variables[piece.place])
            for piece, checksum in zip(pieces, checksums, strict=True)
            if not checksum
        ]
        if not all(bool(each.is_initialized()) for each in doubtful):
            return None
    return _joined(checksums)


def digest(weight: Variable) -> bytes:
    """Returns the fingerprint of a variable, of `DIGEST_BYTES`."""
    return _joined(map(zlib.crc32, _pieces(value_of(weight))))


def digests(values: Iterable[_Value]) -> list[bytes]:
    """Returns the fingerprint of each of some values."""
    counts: list[int] = []

    def pieces() -> Iterator[_Bytes]:
        for value in values:
            found = _pieces(value)
            counts.append(len(found))
            yield from found

    checksums = iter(_checksums(pieces()))
    return [_joined(itertools.islice(checksums, each)) for each in counts]


def value_of(variable: Variable) -> _Value:
    """Returns the value of a variable: a tensor, or else an array."""
    plain = compat.tf_variable(variable)
    if tf.executing_eagerly() and isinstance(plain, BaseResourceVariable):
        return tf.raw_ops.ReadVariableOp(
            resource=plain.handle, dtype=plain.dtype
        )
    return compat.as_numpy(variable)


def _of_piece(value: _Value, piece: Piece) -> _Bytes:
    if piece.begin is None or piece.end is None:
        return _bytes(value)
    value = tf.convert_to_tensor(value)
    size = value.dtype.size
    # By an operation: of a value on an accelerator, the piece alone is copied.
    part = tf.reshape(value, [-1])[piece.begin // size : piece.end // size]
    return _bytes(part)


def _bytes(value: _Value) -> _Bytes:
    """Returns the bits of a value, not copied where that can be."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return np.frombuffer(value, np.uint8)


def _pieces(value: _Value) -> list[_Bytes]:
    content = _bytes(value)
    begins = range(0, len(content), _PIECE)
    return [content[begin : begin + _PIECE] for begin in begins]


def _checksums(pieces: Iterable[_Bytes]) -> list[int]:
    """Returns the checksums of values, those of large ones made in threads."""
    made: list[int | Future[int]] = []
    threads = 0
    with contextlib.ExitStack() as stack:
        for each in pieces:
            is_large = len(each) >= _THREADED
            if is_large and not threads:
                # It takes long to find out, and small ones need not know.
                threads = max(1, cores.available() // topology.local_size())
                pool = stack.enter_context(ThreadPoolExecutor(threads))
            if is_large and threads > 1:
                made.append(pool.submit(zlib.crc32, each))
            else:
                made.append(zlib.crc32(each))
    return [each if isinstance(each, int) else each.result() for each in made]


def _joined(checksums: Iterable[int]) -> bytes:
    content = b"".join(each.to_bytes(4, "little") for each in checksums)
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
