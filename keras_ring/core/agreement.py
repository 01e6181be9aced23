"""Compares lists of names between ranks, and reports where they differ."""

from __future__ import annotations

import hashlib

from keras_ring.core import arrays, process_sets
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import ProcessSet, global_process_set


def require_same(
    name: str,
    what: str,
    lines: list[str],
    compared: list[str] | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Raises the same error on all ranks if their lists differ.

    Args:
        name: String, the name of the exchange, the same on all ranks.
        what: String, a plural noun for the entries, for the error.
        lines: List of strings, the entries as they are shown in the error.
        compared: List of strings, the entries as they are compared. Defaults to
            `lines`.
        process_set: `ProcessSet` whose members compare their lists. Defaults to
            all ranks.

    Raises:
        ValueError: If the lists differ between ranks.

    Example:
    ```python
    kr.require_same("files", "files of the data", sorted(paths))
    ```
    """
    if process_sets.is_alone(process_set):
        return
    compared = lines if compared is None else compared
    digest = hashlib.sha256("\n".join(compared).encode()).digest()
    digests = arrays.gather_digests(digest, f"{name}/digest", process_set)
    if (digests == digests[0]).all():
        return
    by_rank = allgather_object(
        (lines, compared), f"{name}/differences", process_set
    )
    first_lines, first = by_rank[0]
    index = next(r for r, (_, c) in enumerate(by_rank) if c != first)
    other_lines, second = by_rank[index]
    lowest, other = process_set.ranks[0], process_set.ranks[index]
    position = next(
        (
            i
            for i, (a, b) in enumerate(zip(first, second, strict=False))
            if a != b
        ),
        min(len(first), len(second)),
    )

    def shown(one: list[str]) -> str:
        return one[position] if position < len(one) else "nothing"

    raise ValueError(
        f"The {what} differ between ranks. Rank {lowest} has {len(first)}, "
        f"rank {other} has {len(second)}. They differ first at position "
        f"{position}: rank {lowest} has {shown(first_lines)}, rank {other} has "
        f"{shown(other_lines)}. Build the same model in the same way on "
        "every rank."
    )
