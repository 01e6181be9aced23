"""Keeps the buffers of a model the same on all ranks while it trains."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from keras_ring.core.docstrings import described
from keras_ring.core.objects import require_member
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
    shares_nothing,
)
from keras_ring.torch import gather_calls, parameters

_numbers = itertools.count()


@described
def broadcast_buffers(
    model: torch.nn.Module,
    root_rank: int = 0,
    process_set: ProcessSet = global_process_set,
) -> torch.utils.hooks.RemovableHandle:
    """Gives all ranks the buffers of one, now and after each forward pass.

    Buffers are what a model keeps and does not train, such as the statistics
    of batch normalization. `DistributedDataParallel` shares them before each
    forward pass. Here that is after each forward pass in training mode, so that
    the next one has the same buffers, and an evaluation or a checkpoint between
    steps has them as well, on whichever rank. It is one operation for all
    buffers of a dtype. Passes under `torch.no_grad()` and in evaluation mode
    share nothing, so one rank may make them alone.

    All ranks must make the same number of forward passes in training mode.

    Args:
        model: A `torch.nn.Module` that the program calls. Modules that it has
            are not looked at if they are called by themselves.
        root_rank: {{root_rank}}
        process_set: {{process_set}}

    Returns:
        A handle, whose method `remove()` ends it.

    Raises:
        TypeError: If `model` is no `torch.nn.Module`.
        ValueError: If the ranks have other buffers, or `root_rank` is not a
            member.
        UnavailableError: {{lost}}

    Example:
    ```python
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
    )
    kr.broadcast_buffers(model)
    ```
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"`model` must be a `torch.nn.Module`. Received: {model!r}"
        )
    require_member(root_rank, process_set)
    if shares_nothing(process_set):
        return model.register_forward_hook(_share_nothing)
    parameters.share(list(model.named_buffers()), process_set, root_rank)
    prefix = f"buffers/{next(_numbers)}"

    def share(module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        del inputs, outputs
        if not module.training or not torch.is_grad_enabled():
            return
        handles = [
            gather_calls.broadcast(
                buffers,
                root_rank,
                f"{prefix}/{dtype}/{device}",
                process_set,
                in_place=True,
            )
            for (dtype, device), buffers in _by_kind(module).items()
        ]
        for handle in handles:
            handle.wait()

    return model.register_forward_hook(share)


def _share_nothing(module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
    """Does nothing: the rank trains alone."""


def _by_kind(
    module: torch.nn.Module,
) -> dict[tuple[str, str], list[Tensor]]:
    """Returns the buffers by dtype and type of device, in their order."""
    found: dict[tuple[str, str], list[Tensor]] = {}
    for buffer in module.buffers():
        kind = str(buffer.dtype).removeprefix("torch."), buffer.device.type
        found.setdefault(kind, []).append(buffer)
    return found
