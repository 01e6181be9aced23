"""Detects ranks whose values have become different.

Equal gradients keep parameters equal only if nothing else changes them. A rank
that loads weights by itself, or has another learning rate, trains a model of
its own from then on, and nothing looks wrong. So ranks compare such values
before some of the steps: the first, the second, the fourth and so on up to
`_PERIOD`, and then once in as many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from keras_ring.core import arrays
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import ProcessSet
from keras_ring.errors import ConsistencyError

_PERIOD = 1024

Rows = list[tuple[str, str]]
"""What is compared, such as "parameter 'w'", and its value or checksum."""


class PeriodicCheck:
    """Compares values of ranks before some of the steps of a training.

    Args:
        name: String, the name of the exchange, the same on all ranks.
        rows: Function that returns the `Rows`, in an order that ranks share.
        process_set: The `ProcessSet` of the ranks that compare.
        advice: String, a sentence for the error: how ranks get equal values.
    """

    def __init__(
        self,
        name: str,
        rows: Callable[[], Rows],
        process_set: ProcessSet,
        advice: str,
    ) -> None:
        self._name = name
        self._rows = rows
        self._process_set = process_set
        self._advice = advice
        self._steps = 0

    def before_step(self) -> None:
        """Compares the values, if it is time for that.

        Raises:
            ConsistencyError: On all ranks, if they differ.
        """
        self._steps += 1
        steps = self._steps
        is_due = (
            steps & (steps - 1) == 0
            if steps < _PERIOD
            else (steps % _PERIOD == 0)
        )
        # Ranks that have joined take no part in the others' exchanges.
        if is_due and not arrays.has_joined():
            self._compare()

    def _compare(self) -> None:
        rows = self._rows()
        text = "\n".join(f"{what} {value}" for what, value in rows)
        digest = hashlib.sha256(text.encode()).digest()
        digests = arrays.gather_digests(digest, self._name, self._process_set)
        if (digests == digests[0]).all():
            return
        by_rank = allgather_object(
            rows, f"{self._name}/differences", self._process_set
        )
        raise ConsistencyError(self._told(by_rank))

    def _told(self, by_rank: Sequence[Rows]) -> str:
        ranks = self._process_set.ranks
        first = by_rank[0]
        index, other = next(
            (i, rows) for i, rows in enumerate(by_rank) if rows != first
        )
        differing = [
            (what, mine, theirs)
            for (what, mine), (_, theirs) in zip(first, other, strict=False)
            if mine != theirs
        ]
        if not differing:
            return (
                f"Ranks train different models: rank {ranks[0]} has "
                f"{len(first)} values, and rank {ranks[index]} {len(other)}. "
                f"{self._advice}"
            )
        what, mine, theirs = differing[0]
        return (
            f"Ranks train different models: before step {self._steps}, {what} "
            f"is {mine} on rank {ranks[0]} and {theirs} on rank "
            f"{ranks[index]}, and so are {len(differing) - 1} more values. "
            "Gradients are the same on all ranks, so something else has "
            f"changed them on one: {self._advice}"
        )
