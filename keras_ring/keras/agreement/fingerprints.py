"""Fingerprints of the values of variables, which ranks compare.

They are made of checksums, several times as fast as a cryptographic hash:
differences between ranks are accidents, not attacks. A variable is read by the
least that its framework needs, and its bytes are not copied, because what
`tf.Variable` and `keras.Variable` add takes ten times as long.
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

from keras_ring._typing import Variable
from keras_ring.core import topology
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat
from keras_ring.protocol import cores

DIGEST_BYTES = 16
_PIECE = 1 << 20  # bytes that one checksum covers
_THREADED = 256 << 10  # bytes from which on a thread is worthwhile
# Reading a variable takes as long as the checksum of this many bytes.
_BYTES_OF_A_READ = 32 << 10

_Bytes = Any  # an array of `uint8`
_Value = Any  # an array, or a tensor


class Piece(NamedTuple):
    """A part of the value of one of several variables.

    Args:
        variable_index: Integer, the index of the variable.
        begin: Integer, the first byte of the part, or `None` if it is the
            whole value.
        end: Integer, the end of the part in bytes, exclusive, or `None`.
    """

    variable_index: int
    begin: int | None = None
    end: int | None = None


class Pieces:
    """The pieces that the values of variables are read in.

    Args:
        variables: The variables.

    Attributes:
        effort: Integer, the cost of reading all pieces, in bytes.
        largest: Integer, the cost of the most expensive piece, in bytes.
    """

    def __init__(self, variables: Iterable[Variable]) -> None:
        found: list[tuple[Piece, int]] = []
        for index, variable in enumerate(variables):
            size = backend.num_bytes(variable) or 0
            for begin in range(0, max(1, size), _PIECE):
                end = min(begin + _PIECE, size)
                is_one = size <= _PIECE
                piece = Piece(index) if is_one else Piece(index, begin, end)
                found.append((piece, end - begin + _BYTES_OF_A_READ))
        # Shuffled in the same way on all ranks, so that consecutive pieces are
        # of all kinds of variables, not of the optimizer's slots alone.
        random.Random(0).shuffle(found)
        self._pieces = [piece for piece, _ in found]
        self._efforts = [effort for _, effort in found]
        self.effort = sum(self._efforts)
        self.largest = max(self._efforts, default=0)

    def __len__(self) -> int:
        return len(self._pieces)

    def some(self, begin: int, effort: float) -> tuple[list[Piece], int]:
        """Returns consecutive pieces, wrapping at the end, and their cost.

        Args:
            begin: Integer, the index of the first piece.
            effort: Float, the cost to reach, or that of all pieces if it is
                less.
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
        pieces: Pieces that `Pieces.some` of these variables has returned.
        values: The values of the variables. Defaults to their present values.

    Returns:
        Bytes, or `None` if one of the variables is not initialized.
    """
    checksums = _checksums(
        backend.bytes_of(
            value_of(variables[each.variable_index])
            if values is None
            else values[each.variable_index],
            each.begin,
            each.end,
        )
        for each in pieces
    )
    if values is None:
        # An uninitialized variable reads as no bytes, whose checksum is 0.
        doubtful = [
            variables[piece.variable_index]
            for piece, checksum in zip(pieces, checksums, strict=True)
            if not checksum
        ]
        if not all(map(backend.is_initialized, doubtful)):
            return None
    return _joined(checksums)


def digest(weight: Variable) -> bytes:
    """Returns the fingerprint of a variable, `DIGEST_BYTES` long."""
    return _joined(map(zlib.crc32, _pieces(value_of(weight))))


def digests(values: Iterable[_Value]) -> list[bytes]:
    """Returns the fingerprint of each value."""
    counts: list[int] = []

    def pieces() -> Iterator[_Bytes]:
        for value in values:
            found = _pieces(value)
            counts.append(len(found))
            yield from found

    checksums = iter(_checksums(pieces()))
    return [_joined(itertools.islice(checksums, each)) for each in counts]


def value_of(variable: Variable) -> _Value:
    """Returns the value of a variable, as a tensor or an array."""
    value = backend.value_of(variable)
    return compat.as_numpy(variable) if value is None else value


def _pieces(value: _Value) -> list[_Bytes]:
    content = backend.bytes_of(value)
    begins = range(0, len(content), _PIECE)
    return [content[begin : begin + _PIECE] for begin in begins]


def _checksums(pieces: Iterable[_Bytes]) -> list[int]:
    """Returns the checksums of pieces, those of large ones made in threads."""
    made: list[int | Future[int]] = []
    threads = 0
    with contextlib.ExitStack() as stack:
        for each in pieces:
            is_large = len(each) >= _THREADED
            if is_large and not threads:
                # Counting cores is slow, and small pieces need no threads.
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
