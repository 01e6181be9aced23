"""Comparison of values between ranks, by their digests."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Variable
from keras_ring.core import arrays
from keras_ring.core.process_sets import ProcessSet
from keras_ring.keras.agreement import fingerprints
from keras_ring.keras.agreement.fingerprints import DIGEST_BYTES
from keras_ring.keras.backends import backend

_PARTS = 1024  # parts of an array whose checksums one exchange compares
_SHOWN = 8  # ranks that a message names


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference between the values of variables on several ranks.

    Args:
        counts: List of integers, the number of variables of each rank, if the
            numbers differ.
        count: Integer, the number of variables that differ.
        path: String, the path of the first variable that differs.
        ranks: String, which ranks have the same value of it.
        values: String, the first index at which they differ, and the element
            of each rank there.
    """

    counts: list[int] = dataclasses.field(default_factory=list)
    count: int = 0
    path: str = ""
    ranks: str = ""
    values: str = ""


def first_difference(
    variables: Sequence[Variable],
    name: str,
    process_set: ProcessSet,
    values: Sequence[npt.NDArray[Any]] | None = None,
) -> Difference | None:
    """Compares the values of variables between ranks.

    Args:
        variables: The variables, in an order that all ranks share.
        name: String, the name of the exchange, the same on all ranks.
        process_set: The process set whose members compare.
        values: The values of the variables, as arrays. Defaults to their
            present values.

    Returns:
        A `Difference`, the same on all members, or `None` if there is none.
    """
    return compared(variables, name, process_set, values)[0]


def compared(
    variables: Sequence[Variable],
    name: str,
    process_set: ProcessSet,
    values: Sequence[npt.NDArray[Any]] | None = None,
    wish: int = 0,
) -> tuple[Difference | None, int]:
    """Returns the first difference, if any, and the largest `wish`.

    Args:
        variables: As for `first_difference`.
        name: As for `first_difference`.
        process_set: As for `first_difference`.
        values: As for `first_difference`.
        wish: Integer, not negative, sent along with the digest.
    """

    def value_of(index: int) -> Any:
        if values is None:
            return fingerprints.value_of(variables[index])
        return values[index]

    digests = fingerprints.digests(map(value_of, range(len(variables))))
    together = hashlib.blake2b(b"".join(digests), digest_size=DIGEST_BYTES)
    same, (largest,) = alike(together.digest(), [wish], name, process_set)
    if same:
        return None, largest
    # All ranks take the same branch, because all have gathered the same rows.
    count = len(variables).to_bytes(8, "little")
    counts = _gathered(count, f"{name}/count", process_set)
    if not (counts == counts[0]).all():
        numbers = counts.view("<u8").flatten().tolist()
        return Difference(counts=numbers), largest
    by_rank = _gathered(b"".join(digests), f"{name}/weights", process_set)
    by_rank = by_rank.reshape(process_set.size(), len(variables), DIGEST_BYTES)
    differs = (by_rank != by_rank[0]).any(axis=(0, 2))
    first = int(np.argmax(differs))
    difference = Difference(
        count=int(differs.sum()),
        path=str(backend.variable_path(variables[first])),
        ranks=_grouped(by_rank[:, first], process_set.ranks),
        values=_shown(backend.as_array(value_of(first)), name, process_set),
    )
    return difference, largest


def alike(
    content: bytes, wishes: Sequence[int], name: str, process_set: ProcessSet
) -> tuple[bool, list[int]]:
    """Compares a fingerprint between ranks, and exchanges wishes.

    Args:
        content: Bytes, the fingerprint, of the same length on all ranks.
        wishes: Integers, not negative, the same number on all ranks.
        name: String, the name of the exchange, the same on all ranks.
        process_set: The process set whose members compare.

    Returns:
        A tuple: whether the fingerprint is the same on all ranks, and a list
        of the largest value of each wish.
    """
    sent = content + np.array(wishes, "<u8").tobytes()
    gathered = _gathered(sent, name, process_set)
    of_ranks = np.ascontiguousarray(gathered[:, len(content) :]).view("<u8")
    gathered = gathered[:, : len(content)]
    same = bool((gathered == gathered[0]).all())
    # Ranks that have joined send no row, and it is not known which they are.
    same = same or len(gathered) < process_set.size()
    return same, of_ranks.max(axis=0).tolist()


def _shown(value: npt.NDArray[Any], name: str, process_set: ProcessSet) -> str:
    """Describes where arrays first differ, and the elements of ranks there."""
    size = value.size.to_bytes(8, "little")
    sizes = _gathered(size, f"{name}/size", process_set)
    if not (sizes == sizes[0]).all():
        return ""
    flat = np.ascontiguousarray(value).reshape(-1)
    begin, end = 0, flat.size
    while end - begin > 1:
        step = -(-(end - begin) // _PARTS)
        begins = range(begin, end, step)
        checksums = [
            zlib.crc32(flat[each : min(each + step, end)].tobytes())
            for each in begins
        ]
        rows = _gathered(
            b"".join(each.to_bytes(4, "little") for each in checksums),
            f"{name}/parts",
            process_set,
        ).view("<u4")
        begin = begins[int(np.argmax((rows != rows[0]).any(axis=0)))]
        end = min(begin + step, end)
    rows = _gathered(flat[begin:end].tobytes(), f"{name}/element", process_set)
    elements = rows.view(value.dtype).reshape(-1)[:_SHOWN]
    index = [int(i) for i in np.unravel_index(begin, value.shape)]
    shown = [
        f"rank {rank}: {element!s}"
        for rank, element in zip(process_set.ranks, elements, strict=False)
    ]
    if process_set.size() > _SHOWN:
        shown.append("...")
    return f"{f'at {index} ' if index else ''}" + ", ".join(shown)


def _gathered(
    content: bytes, name: str, process_set: ProcessSet
) -> npt.NDArray[Any]:
    """Returns the bytes of all ranks, one row each."""
    return arrays.gather_digests(content, name, process_set)


def _grouped(digests: npt.NDArray[Any], members: list[int]) -> str:
    groups: dict[bytes, list[str]] = {}
    for rank, digest in zip(members, digests, strict=True):
        groups.setdefault(digest.tobytes(), []).append(str(rank))
    return " and ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)} "
        f"ha{'ve' if len(ranks) > 1 else 's'} {which}"
        for ranks, which in zip(
            groups.values(),
            ["one value", *["another"] * len(groups)],
            strict=False,
        )
    )
