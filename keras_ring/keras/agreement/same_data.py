"""Compares the data that ranks are about to split.

Each rank takes every n-th element, so data in another order on each rank are
partly used twice and partly never, and nothing looks wrong. No element is read
and no iteration begins: arrays are compared by a few of their rows, and a
`tf.data.Dataset` by its sources (`datasets`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Array
from keras_ring.core import arrays, topology
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
    is_alone,
)
from keras_ring.keras.agreement.rank_names import rank_list
from keras_ring.keras.backends import backend

_ROWS = 32  # rows of an array that are compared
_NUMBERS = 16  # numbers of a row that are compared
_TOLERANCE = 1e-4  # of the largest number, for rounding of other processors

# The advice of an error to programs whose ranks have different data on purpose.
OTHERWISE = (
    "they need no shard; `kr.data.shard(..., check=False)` leaves this "
    "comparison out."
)


@dataclasses.dataclass
class Part:
    """Something that must be the same on all ranks.

    Args:
        what: String, a description for the error.
        text: String, the value on this rank, compared exactly.
        numbers: Array of floats, compared up to rounding, or `None`.
        is_random: Boolean, whether each rank has another one.
    """

    what: str
    text: str
    numbers: npt.NDArray[np.float64] | None = None
    is_random: bool = False

    def content(self) -> bytes:
        """Returns bytes that are equal if the part is equal to the bit."""
        numbers = b"" if self.numbers is None else self.numbers.tobytes()
        return f"{self.what}\0{self.text}\0{self.is_random}".encode() + numbers

    def same_as(self, other: Part) -> bool:
        """Returns whether the part equals that of another rank."""
        if (self.what, self.text) != (other.what, other.text):
            return False
        if self.numbers is None or other.numbers is None:
            return (self.numbers is None) == (other.numbers is None)
        largest = np.max(np.abs(self.numbers), initial=0.0)
        return self.numbers.shape == other.numbers.shape and np.allclose(
            self.numbers,
            other.numbers,
            rtol=0.0,
            atol=_TOLERANCE * largest,
            equal_nan=True,
        )


def require_same_arrays(
    arrays: Iterable[Array],
    process_set: ProcessSet = global_process_set,
    otherwise: str = OTHERWISE,
) -> None:
    """Raises an error on all ranks if their arrays differ.

    Args:
        arrays: Arrays, tensors or pandas frames.
        process_set: The process set whose members compare. Defaults to all
            ranks.
        otherwise: String, the advice of the error to programs whose ranks
            have different data on purpose.

    Raises:
        ValueError: If they differ.
    """
    if is_compared(process_set):
        compare(_array_parts(arrays), process_set, otherwise)


def require_same_files(files: list[str]) -> None:
    """Raises an error on all ranks if their lists of files differ.

    Args:
        files: List of strings, the paths.

    Raises:
        ValueError: If they differ.
    """
    if is_compared(global_process_set):
        parts = [Part("file", file) for file in files]
        compare(parts, global_process_set, OTHERWISE)


def digest_of(parts: Iterable[Part]) -> bytes:
    """Returns 16 bytes that are equal if all parts are equal to the bit."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.content() + b"\1")
    return digest.digest()


def is_compared(process_set: ProcessSet) -> bool:
    """Returns whether ranks can be compared here."""
    return (
        topology.is_initialized()
        and not is_alone(process_set)
        and backend.is_eager()
    )


def compare(parts: list[Part], process_set: ProcessSet, otherwise: str) -> None:
    """Raises an error on all ranks if their parts differ, or one is random.

    Args:
        parts: List of `Part`s.
        process_set: The process set whose members compare.
        otherwise: String, as for `require_same_arrays`.

    Raises:
        ValueError: If they differ, or the order of elements is random.
    """
    digests = arrays.gather_digests(digest_of(parts), "data/shard", process_set)
    if (digests == digests[0]).all():
        if any(part.is_random for part in parts):
            raise ValueError(_random_error(parts, process_set.size()))
        return
    # All ranks take the same branch, because all have gathered the same rows.
    by_rank = allgather_object(parts, "data/shard/parts", process_set)
    for of_rank in by_rank:
        if any(part.is_random for part in of_rank):
            raise ValueError(_random_error(of_rank, process_set.size()))
    others = [r for r, p in enumerate(by_rank) if not _same(by_rank[0], p)]
    if others:
        ranks = process_set.ranks
        raise ValueError(
            _difference(
                by_rank[0],
                by_rank[others[0]],
                [ranks[0], *(ranks[index] for index in others)],
            )
            + f" If ranks have data of their own on purpose, {otherwise}"
        )


def _same(ours: list[Part], theirs: list[Part]) -> bool:
    return len(ours) == len(theirs) and all(
        a.same_as(b) for a, b in zip(ours, theirs, strict=True)
    )


def _random_error(parts: list[Part], size: int) -> str:
    (first, *_) = (part for part in parts if part.is_random)
    why = first.what + (f" ({first.text})" if first.text else "")
    return (
        f"Of {size} ranks each takes its part of the elements of this "
        "`tf.data.Dataset`, which has them in another order on each of them: "
        f"{why}. Some "
        "elements would be used twice and some never. Pass seed= to what "
        "shuffles before `kr.data.shard`, the same on all ranks (`shuffle`, "
        "`list_files`, `keras.utils.*_dataset_from_directory`), or leave it "
        "to `kr.data.shard(dataset, shuffle=...)`. Parallel reading needs "
        "deterministic=True."
    )


def _difference(ours: list[Part], theirs: list[Part], ranks: list[int]) -> str:
    first, *others = ranks
    nothing = Part("nothing", "nothing")
    length = max(len(ours), len(theirs))
    ours = ours + [nothing] * (length - len(ours))
    theirs = theirs + [nothing] * (length - len(theirs))
    a, b = next(
        (a, b) for a, b in zip(ours, theirs, strict=True) if not a.same_as(b)
    )
    what = a.what if a.what != "nothing" else b.what
    shown = f"rank {first} has {_shown(a)}, rank {others[0]} has {_shown(b)}"
    who = rank_list(others)
    return (
        "The data that the ranks are to split are not the same: "
        f"{what} is not the same on rank {first} and on "
        f"rank{'s' * (len(others) > 1)} {who}: {shown}. Each rank takes its "
        "part of the elements, so some elements would be used twice and some "
        "never. Pass seed= to what "
        "shuffles or splits the data before (`Dataset.shuffle`, "
        "`keras.utils.*_dataset_from_directory`, "
        "`numpy.random.default_rng`, `train_test_split(random_state=...)`), "
        "the same on all ranks."
    )


def _shown(part: Part) -> str:
    if part.numbers is None or not part.numbers.size:
        return part.text
    first = ", ".join(f"{n:.6g}" for n in part.numbers.ravel()[:3])
    return f"{part.text} with {first}, ..."


def _array_parts(arrays: Iterable[Array]) -> list[Part]:
    return [
        array_part(f"array {position}", array)
        for position, array in enumerate(arrays)
    ]


def array_part(what: str, array: Array) -> Part:
    """Describes an array by its shape and a few of its rows."""
    shape = tuple(int(n) for n in array.shape)
    kind = f"{type(array).__name__} of shape {shape}"
    length = shape[0] if shape else 0
    if not length:
        return Part(what, kind)
    indexes = np.unique(np.linspace(0, length - 1, _ROWS).astype(np.int64))
    rows = _dense(take_rows(array, indexes))
    rows = rows.reshape(len(indexes), -1)
    step = max(1, rows.shape[1] // _NUMBERS)
    rows = rows[:, ::step][:, :_NUMBERS]
    if rows.dtype.kind == "f":
        return Part(what, kind, rows.astype(np.float64))
    texts = rows.astype(str) if rows.dtype.kind != "O" else rows
    digest = hashlib.blake2b(
        repr(texts.tolist()).encode(), digest_size=4
    ).hexdigest()
    return Part(
        what, f"{kind}, beginning {texts[0].tolist()[:3]}, digest {digest}"
    )


def take_rows(array: Array, indices: npt.NDArray[Any]) -> Array:
    """Returns rows of an array, tensor or frame."""
    if backend.is_tensor(array):
        return backend.take_rows(array, indices)
    if hasattr(array, "iloc"):
        return array.iloc[indices]
    return array[indices]


def _dense(rows: Array) -> npt.NDArray[Any]:
    if hasattr(rows, "toarray"):
        rows = rows.toarray()
    if backend.is_tensor(rows):
        rows = backend.as_array(rows)
    dense: npt.NDArray[Any] = np.asarray(rows)
    # NumPy has no bfloat16.
    return dense.astype(np.float32) if dense.dtype.kind == "V" else dense
