"""The three kinds of cases of `keras-ring bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from keras_ring.bench import shapes
from keras_ring.bench.case import Case, itemsize


def size_name(num_bytes: int) -> str:
    """Returns a size as text in the largest unit that divides it: "64 KiB"."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if num_bytes and num_bytes % (1 << shift) == 0:
            return f"{num_bytes >> shift} {unit}"
    return f"{num_bytes} B"


def ladder(min_bytes: int, max_bytes: int, factor: int) -> list[int]:
    """Returns sizes from the smallest on, each `factor` times the last."""
    sizes = []
    while min_bytes <= max_bytes:
        sizes.append(min_bytes)
        min_bytes *= factor
    return sizes


def allreduce(sizes: Sequence[int], *, dtype: str, op: str) -> list[Case]:
    """Returns a case of one tensor for each size, in whole elements."""
    return [
        Case(
            name=f"allreduce {size_name(size)}",
            shapes=tuple(shapes.equal_parts(1, size // itemsize(dtype))),
            dtype=dtype,
            op=op,
        )
        for size in sizes
    ]


def parts(
    counts: Sequence[int],
    num_bytes: int,
    *,
    dtype: str,
    op: str,
    grouped: bool,
) -> list[Case]:
    """Returns cases that divide the same bytes into one tensor, ten or more."""
    return [
        Case(
            name=f"{size_name(num_bytes)} in {count}"
            + (" grouped" if grouped else ""),
            shapes=tuple(
                shapes.equal_parts(count, num_bytes // itemsize(dtype))
            ),
            dtype=dtype,
            op=op,
            grouped=grouped,
        )
        for count in counts
    ]


def step(name: str, *, dtype: str, op: str, grouped: bool, fresh: bool) -> Case:
    """Returns a case with the tensors that a training step reduces.

    Args:
        name: A key of `shapes.STEPS`.
        dtype: Name of the dtype of the tensors.
        op: Name of the `keras_ring.ReduceOp`.
        grouped: See `Case`.
        fresh: See `Case`.
    """
    words = [name, *["fresh"] * fresh, *["grouped"] * grouped]
    return Case(
        name=" ".join(words),
        shapes=tuple(shapes.STEPS[name]()),
        dtype=dtype,
        op=op,
        grouped=grouped,
        fresh=fresh,
    )


def compressed(case: Case, compression: str) -> Case:
    """Returns the case with a compression; see `Case`."""
    if compression == "none":
        return case
    return replace(
        case, name=f"{case.name} {compression}", compression=compression
    )
