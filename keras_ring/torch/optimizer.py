"""`DistributedOptimizer` for optimizers of PyTorch."""

from __future__ import annotations

import collections
import contextlib
import itertools
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from keras_ring.core.docstrings import described
from keras_ring.core.periodic_check import PeriodicCheck
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Average, ReduceOp
from keras_ring.torch import parameters
from keras_ring.torch.compression import Compression
from keras_ring.torch.gradient_reducer import GradientReducer
from keras_ring.torch.parameter_check import parameter_check
from keras_ring.torch.reduction_calls import Reduction

Named = list[tuple[str, Tensor]]

_numbers = itertools.count()


class _Distributed(torch.optim.Optimizer):
    """The base of distributed optimizers, beside their own class."""

    # None on a rank that trains alone.
    _reducer: GradientReducer | None
    _check: PeriodicCheck
    _prefix: str
    _parameter_names: dict[Tensor, str]
    _skips: bool
    _was_synchronized: bool

    def synchronize(self) -> None:
        """Reduces gradients that are not reduced yet, and waits for all.

        There is no need to call it: gradients are reduced when `backward()`
        returns, and at the latest in `step()`.
        """
        self._was_synchronized = True
        self._complete()

    def _complete(self) -> None:
        if self._reducer is not None and not self._reducer.is_complete:
            self._reducer.complete()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Lets `step()` in the `with` statement reduce nothing.

        Example:
        ```python
        optimizer.synchronize()
        clip(model)
        with optimizer.skip_synchronize():
            optimizer.step()
        ```
        """
        before, self._skips = self._skips, True
        try:
            yield
        finally:
            self._skips = before

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Lets `backward()` in the `with` statement reduce nothing.

        The gradients are accumulated on each rank, and reduced by the next
        backward pass outside, or by `step()`.

        Example:
        ```python
        with optimizer.no_sync():
            for batch in batches[:-1]:
                loss_of(batch).backward()
        loss_of(batches[-1]).backward()
        optimizer.step()
        ```
        """
        if self._reducer is None:
            yield
            return
        with self._reducer.paused():
            yield

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of backward passes before a reduction.

        Args:
            passes: Integer, one or more.
        """
        _check_passes(passes)
        if self._reducer is not None:
            self._reducer.passes = passes

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients; see `torch.optim.Optimizer.zero_grad`."""
        if self._reducer is not None:
            self._reducer.end_step()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters; see `torch.optim.Optimizer.add_param_group`.

        All ranks must add the same ones. They get the values of the lowest rank
        of the process set.
        """
        super().add_param_group(param_group)
        group = len(self.param_groups) - 1
        added = [
            (f"{self._prefix}{name}", parameter)
            for name, parameter in _unnamed(self.param_groups[group:], group)
        ]
        self._parameter_names.update({p: name for name, p in added})
        if self._reducer is not None:
            parameters.share(added, self._reducer.process_set)
            for name, parameter in added:
                self._reducer.add([name], [parameter])


@described
def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes an optimizer train with the gradients of all ranks.

    Gradients are reduced while `backward()` computes further ones, and are
    those of all ranks when it returns. So clipping, `torch.amp.GradScaler` and
    whatever else a program does with them is right. Each rank must call
    `backward()` and `step()` equally often; a rank without data calls
    `kr.join()`.

    The optimizer itself is changed, and keeps its state, its schedulers, and
    its class as a base of the new one. It gets the methods `synchronize`,
    `skip_synchronize`, `no_sync` and `set_backward_passes_per_step`.

    The parameters get the values of the lowest rank of the process set. If a
    rank changes its own, or its learning rate, later, that is an error at one
    of the next steps: before the first, second, fourth and so on up to the
    1024th, and then once in 1024, ranks compare them. Layers
    such as batch normalization have buffers besides, which
    `kr.broadcast_parameters(model.state_dict(), root_rank=0)` shares.

    A parameter that has no gradient on one rank, and has one on another,
    counts as zeros on the former. One that has no gradient on any rank is not
    updated, as in one process. The same holds for gradients that a program
    turns on later by `requires_grad_()`.

    Args:
        optimizer: A `torch.optim.Optimizer`.
        named_parameters: Iterable of pairs of a name and a parameter, such as
            `model.named_parameters()`; the names show in messages and
            timelines. Defaults to the positions in the optimizer's groups.
        compression: {{compression}}
        backward_passes_per_step: Integer, the number of backward passes whose
            gradients are accumulated (summed) before they are reduced. Defaults
            to `1`.
        op: {{op}}
        gradient_predivide_factor: Float. Gradients are divided by it before the
            sum, and by `size / gradient_predivide_factor` after it. Only for
            `kr.Average`. Defaults to `1.0`.
        num_groups: Integer, the number of groups of about equal length in which
            gradients are reduced, each as one operation. Defaults to `0`, which
            leaves it to the runtime which gradients travel together.
        groups: As `num_groups`, or a list of lists of parameters, each of which
            is reduced as one operation. Defaults to `None`.
        sparse_as_dense: Boolean, whether sparse gradients are reduced as dense
            ones. Defaults to `False`: their elements are gathered.
        process_set: {{process_set}} Ranks outside of it train alone.

    Returns:
        `optimizer`.

    Raises:
        TypeError: If `optimizer` is not a `torch.optim.Optimizer`, or `op` or
            `compression` have no meaning.
        ValueError: If names are used twice or missing, a parameter is in two
            groups, a number is too small, or the ranks have other parameters.

    Example:
    ```python
    import keras_ring.torch as kr

    kr.init()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * kr.size())
    optimizer = kr.DistributedOptimizer(optimizer, model.named_parameters())
    for x, y in batches_of_this_rank:
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    ```
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            "`optimizer` must be a `torch.optim.Optimizer`. Received: "
            f"{optimizer!r}"
        )
    if isinstance(optimizer, _Distributed):
        raise ValueError(
            "`optimizer` is a `DistributedOptimizer` already. Received: "
            f"{type(optimizer).__name__}"
        )
    _check_passes(backward_passes_per_step)
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError(
            "`gradient_predivide_factor` divides an average. Received: "
            f"{gradient_predivide_factor} with op={op!r}"
        )
    reduction = Reduction(
        op,
        1.0 / gradient_predivide_factor,
        gradient_predivide_factor,
        compression,
        process_set,
    )
    named = _named(optimizer, named_parameters)
    divided = _divided(named, groups if groups is not None else num_groups)
    prefix = _prefix()
    names = {p: f"{prefix}{name}" for name, p in named}
    reducer = None
    if process_set.included() and process_set.size() > 1:
        parameters.share([(names[p], p) for _, p in named], process_set)
        reducer = GradientReducer(
            f"{prefix}optimizer",
            reduction,
            backward_passes_per_step,
            sparse_as_dense,
        )
        for group in divided:
            reducer.add([names[p] for p in group], group)
        # A program may make another optimizer of the same parameters.
        weakref.finalize(optimizer, reducer.close)
        optimizer._check = parameter_check(
            f"{prefix}parameters", optimizer, names, process_set
        )
        optimizer.register_step_pre_hook(_before_step)
        optimizer.register_step_post_hook(_after_step)
    base = type(optimizer)
    optimizer.__class__ = type(
        base.__name__,
        (_Distributed, base),
        {"__doc__": base.__doc__, "__module__": base.__module__},
    )
    optimizer._prefix, optimizer._parameter_names = prefix, names
    optimizer._reducer = reducer
    optimizer._skips = optimizer._was_synchronized = False
    return optimizer


def is_distributed(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether an optimizer is a `DistributedOptimizer`."""
    return isinstance(optimizer, _Distributed)


def _before_step(
    optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Completes the gradients before an update.

    It is a hook of the optimizer, because a scheduler that was made before may
    have wrapped `step` of the former class.
    """
    closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
    if closure is None and not optimizer._skips:
        optimizer._complete()
    # After the gradients: a rank without any waits for those of others here.
    optimizer._check.before_step()
    if optimizer._skips:
        return None
    if optimizer._was_synchronized:
        warnings.warn(
            "optimizer.step() called without optimizer.skip_synchronize() "
            "after optimizer.synchronize(). Gradients are used as they are. "
            "Neither call is needed: gradients are reduced when backward() "
            "returns.",
            stacklevel=4,
        )
    if closure is None:
        return None

    def completed() -> Any:
        loss = closure()
        optimizer._complete()
        return loss

    return (args[0], completed), {
        name: value for name, value in kwargs.items() if name != "closure"
    }


def _after_step(optimizer: Any, *_: Any) -> None:
    optimizer._was_synchronized = False
    optimizer._reducer.end_step()


def _check_passes(passes: int) -> None:
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(
            "`backward_passes_per_step` must be an integer, one or more. "
            f"Received: {passes!r}"
        )


def _prefix() -> str:
    """Returns a prefix for names, which tells a program's optimizers apart."""
    number = next(_numbers)
    return f"optimizer_{number}/" if number else ""


def _unnamed(groups: Sequence[dict[str, Any]], begin: int = 0) -> Named:
    return [
        (f"parameter.{i}.{j}", parameter)
        for i, group in enumerate(groups, begin)
        for j, parameter in enumerate(group["params"])
    ]


def _named(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None,
) -> Named:
    """Returns the parameters of an optimizer with their names, in its order."""
    unnamed = _unnamed(optimizer.param_groups)
    if named_parameters is None:
        return unnamed
    given = list(named_parameters)
    for pair in given:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                "`named_parameters` must be pairs of a name and a parameter, "
                f"such as `model.named_parameters()`. Received: {pair!r}"
            )
    names = {parameter: name for name, parameter in given}
    counts = collections.Counter(name for name, _ in given)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise ValueError(
            "Names in `named_parameters` must be unique. Received more than "
            f"once: {', '.join(twice)}"
        )
    missing = [position for position, p in unnamed if p not in names]
    if missing:
        raise ValueError(
            f"`named_parameters` has no name for {len(missing)} of "
            f"{len(unnamed)} parameters of the optimizer: those at "
            f"{', '.join(missing[:5])} (group and position)."
        )
    return [(names[parameter], parameter) for _, parameter in unnamed]


def _divided(
    named: Named, groups: int | Sequence[Sequence[Tensor]]
) -> list[list[Tensor]]:
    """Returns the lists of parameters that are reduced together."""
    every = [parameter for _, parameter in named]
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(
                "`groups` must be a list of lists of parameters, or an "
                f"integer that is not negative. Received: {groups}"
            )
        divided = _parts(every, groups) if groups else [[p] for p in every]
    else:
        divided = [list(group) for group in groups]
        known = set(every)
        grouped: set[Tensor] = set()
        for parameter in itertools.chain(*divided):
            if not isinstance(parameter, Tensor):
                raise ValueError(
                    f"`groups` must have parameters. Received: {parameter!r}"
                )
            if parameter in grouped:
                raise ValueError(
                    "A parameter can be in one of `groups` only. One of shape "
                    f"{tuple(parameter.shape)} is there twice."
                )
            grouped.add(parameter)
        divided = [[p for p in group if p in known] for group in divided]
        divided += [[p] for p in every if p not in grouped]
    return [
        list(part)
        for group in divided
        for _, part in itertools.groupby(
            sorted(group, key=lambda p: str(p.device)),
            key=lambda p: str(p.device),
        )
    ]


def _parts(values: list[Tensor], count: int) -> list[list[Tensor]]:
    """Divides a list into parts of about the same length."""
    count = min(count, len(values))
    bounds = [len(values) * i // count for i in range(count + 1)]
    return [values[begin:end] for begin, end in itertools.pairwise(bounds)]
