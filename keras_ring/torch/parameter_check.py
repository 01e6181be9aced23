"""The values of an optimizer of PyTorch that all ranks must have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from keras_ring.core.periodic_check import PeriodicCheck, Rows
from keras_ring.core.process_sets import ProcessSet

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ADVICE = (
    "share what a rank loads by `kr.broadcast_parameters(model, root_rank=0)` "
    "and `kr.broadcast_optimizer_state(optimizer, root_rank=0)`, and set "
    "learning rates on all ranks alike."
)


def parameter_check(
    name: str,
    optimizer: torch.optim.Optimizer,
    names: dict[Tensor, str],
    process_set: ProcessSet,
) -> PeriodicCheck:
    """Returns a check of the parameters and learning rates of an optimizer.

    Args:
        name: String, the name of the exchange, the same on all ranks.
        optimizer: The optimizer.
        names: Dictionary of the names of its parameters.
        process_set: The `ProcessSet` of the ranks that compare.
    """

    def rows() -> Rows:
        found = []
        for i, group in enumerate(optimizer.param_groups):
            rate = group.get("lr")
            if rate is not None:
                what = f"the learning rate of parameter group {i}"
                found.append((what, f"{float(rate):.9g}"))
            for parameter in group["params"]:
                what = f"parameter '{names[parameter]}'"
                found.append((what, _fingerprint(parameter)))
        return found

    return PeriodicCheck(name, rows, process_set, _ADVICE)


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
