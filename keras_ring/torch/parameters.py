"""Gives all ranks the parameters and the optimizer's state of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from keras_ring.core import topology
from keras_ring.core.agreement import require_same
from keras_ring.core.docstrings import described
from keras_ring.core.objects import broadcast_object, require_member
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.torch import gather_calls
from keras_ring.torch.operations import Handle

# Broadcasts in flight at a time: each holds a copy of a tensor that is not
# contiguous.
_IN_FLIGHT = 64


@described
def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]] | torch.nn.Module,
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the parameters of one, in place.

    Args:
        params: A `state_dict()`, pairs of a name and a tensor such as
            `model.named_parameters()`, or a model, which means its parameters
            and buffers. Values that are no tensors are left as they are.
        root_rank: {{root_rank}}
        process_set: {{process_set}}

    Raises:
        ValueError: If `params` is none of these, the ranks have other names,
            shapes or dtypes, or `root_rank` is not a member.
        UnavailableError: {{lost}}

    Example:
    ```python
    kr.broadcast_parameters(model.state_dict(), root_rank=0)
    ```
    """
    require_member(root_rank, process_set)
    given: Any = params
    if isinstance(given, torch.nn.Module):
        given = given.state_dict()
    pairs: list[tuple[str, Any]]
    if isinstance(given, Mapping):
        pairs = sorted(given.items())
    elif isinstance(given, Iterable):
        pairs = list(given)
    else:
        raise ValueError(
            "`params` must be a `state_dict()`, pairs of a name and a tensor, "
            f"or a model. Received: {params!r}"
        )
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                "`params` must have pairs of a name and a tensor. Received: "
                f"{pair!r}"
            )
    named = [(str(name), value) for name, value in pairs]
    _broadcast(
        [(name, value) for name, value in named if isinstance(value, Tensor)],
        root_rank,
        process_set,
    )


@described
def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the state of the optimizer of one.

    That is the state of each parameter, such as its momentum, and the settings
    of the parameter groups, such as the learning rate. Ranks need not have made
    a step. A parameter that is trained and has no gradient yet gets one of
    zeros, for programs that were written for Horovod.

    Args:
        optimizer: A `torch.optim.Optimizer`, distributed or not.
        root_rank: {{root_rank}}
        model: Unused; Horovod has this argument.
        process_set: {{process_set}}

    Raises:
        ValueError: If `root_rank` is not a member, or the optimizer is
            `torch.optim.LBFGS`, whose state is not of its parameters.
        UnavailableError: {{lost}}

    Example:
    ```python
    if kr.rank() == 0:
        optimizer.load_state_dict(torch.load("optimizer.pt"))
    kr.broadcast_optimizer_state(optimizer, root_rank=0)
    ```
    """
    del model
    require_member(root_rank, process_set)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "The state of torch.optim.LBFGS cannot be shared: it has a history "
            "that is not of its parameters."
        )
    is_root = topology.rank() == root_rank
    state = optimizer.state_dict() if is_root else None
    tensors: list[Tensor] = []
    described_state = _without_tensors(state, tensors) if is_root else None
    described_state = broadcast_object(
        described_state, root_rank, "optimizer_state", process_set
    )
    received: list[Tensor] = []
    state = _with_tensors(described_state, tensors, received)
    named = [(f"optimizer_state.{i}", t) for i, t in enumerate(received)]
    _broadcast(named, root_rank, process_set)
    if not is_root:
        optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


def share(
    named: Sequence[tuple[str, Tensor]],
    process_set: ProcessSet,
    root_rank: int | None = None,
) -> None:
    """Gives all ranks the parameters of one, in place.

    Args:
        named: List of pairs of a name and a tensor.
        process_set: The `ProcessSet` of the ranks that call this.
        root_rank: Integer, the rank that has them. Defaults to `None`, for the
            lowest.

    Raises:
        ValueError: If the ranks have other names, shapes or dtypes.
    """
    if root_rank is None:
        root_rank = process_set.ranks[0]
    _broadcast(named, root_rank, process_set)


def _broadcast(
    named: Sequence[tuple[str, Tensor]],
    root_rank: int,
    process_set: ProcessSet,
) -> None:
    require_same(
        "parameters",
        "parameters",
        [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in named],
        process_set=process_set,
    )
    handles: list[Handle] = []
    for name, tensor in named:
        if len(handles) == _IN_FLIGHT:
            handles.pop(0).wait()
        handles.append(
            gather_calls.broadcast(
                [tensor.detach()],
                root_rank,
                f"broadcast/{name}",
                process_set,
                in_place=True,
            )
        )
    for handle in handles:
        handle.wait()


class _Placeholder:
    """A placeholder for a tensor in a state that is sent without it."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype
        self.device = tensor.device.type


def _without_tensors(value: Any, tensors: list[Tensor]) -> Any:
    """Returns a state with placeholders for its tensors, which go to a list."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Placeholder(value)
    if isinstance(value, dict):
        return {k: _without_tensors(v, tensors) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_tensors(v, tensors) for v in value)
    return value


def _with_tensors(
    value: Any, tensors: list[Tensor], received: list[Tensor]
) -> Any:
    """Returns a state with tensors for its placeholders.

    Args:
        value: A state with placeholders.
        tensors: List of the tensors of the root; empty on other ranks, which
            make new ones.
        received: List to which the tensors are added, in order.
    """
    if isinstance(value, _Placeholder):
        tensor = (
            tensors[len(received)]
            if tensors
            else torch.zeros(
                value.shape, dtype=value.dtype, device=value.device
            )
        )
        received.append(tensor)
        return tensor
    if isinstance(value, dict):
        return {
            k: _with_tensors(v, tensors, received) for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(v, tensors, received) for v in value)
    return value
