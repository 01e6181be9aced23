"""Detects ranks whose parameters have become different.

Equal gradients keep parameters equal only if nothing else changes them. A rank
that loads weights by itself, or has another learning rate, trains a model of
its own from then on, and nothing looks wrong. So ranks compare their parameters
before some of the updates: the first, the second, the fourth and so on up to
`_PERIOD`, and then once in as many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from keras_ring.core import arrays
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import ProcessSet
from keras_ring.errors import ConsistencyError

_PERIOD = 1024
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ParameterCheck:
    """Compares the parameters of an optimizer between ranks.

    Args:
        name: String, the name of the exchange, the same on all ranks.
        optimizer: The optimizer.
        names: Dictionary of the names of its parameters.
        process_set: The `ProcessSet` of the ranks that compare.
    """

    def __init__(
        self,
        name: str,
        optimizer: torch.optim.Optimizer,
        names: dict[Tensor, str],
        process_set: ProcessSet,
    ) -> None:
        self._name = name
        self._optimizer = optimizer
        self._names = names
        self._process_set = process_set
        self._steps = 0

    def before_step(self) -> None:
        """Compares the parameters, if it is time for that.

        Raises:
            ConsistencyError: On all ranks, if parameters or learning rates
                differ.
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
        raise ConsistencyError(_told(by_rank, self._process_set, self._steps))

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        for i, group in enumerate(self._optimizer.param_groups):
            rate = group.get("lr")
            if rate is not None:
                what = f"the learning rate of parameter group {i}"
                rows.append((what, f"{float(rate):.9g}"))
            for parameter in group["params"]:
                what = f"parameter '{self._names[parameter]}'"
                rows.append((what, _fingerprint(parameter)))
        return rows


def _fingerprint(parameter: Tensor) -> str:
    """Returns a number of the bits of a tensor, in words.

    It is a sum of integers, which does not depend on the order in which a
    processor adds.
    """
    value = parameter.detach()
    if value.is_complex():
        value = torch.view_as_real(value)
    bits = value.contiguous().view(_INTEGERS[value.element_size()])
    return f"of checksum {int(bits.sum(dtype=torch.int64))}"


def _told(
    by_rank: Sequence[list[tuple[str, str]]],
    process_set: ProcessSet,
    steps: int,
) -> str:
    ranks = process_set.ranks
    first = by_rank[0]
    index, other = next(
        (i, rows) for i, rows in enumerate(by_rank) if rows != first
    )
    (what, mine), (_, theirs) = next(
        pair for pair in zip(first, other, strict=True) if pair[0] != pair[1]
    )
    count = sum(one != two for one, two in zip(first, other, strict=True))
    return (
        f"Ranks train different models: before step {steps}, {what} is {mine} "
        f"on rank {ranks[0]} and {theirs} on rank {ranks[index]}, and so are "
        f"{count - 1} more values. Gradients are the same on all ranks, so "
        "something else has changed them on one: share what a rank loads by "
        "`kr.broadcast_parameters(model, root_rank=0)` and "
        "`kr.broadcast_optimizer_state(optimizer, root_rank=0)`, and set "
        "learning rates on all ranks alike."
    )
