"""`DistributedOptimizer` for optimizers of MXNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from keras_ring.core import process_sets
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Average
from keras_ring.mxnet import tensors
from keras_ring.mxnet.reductions import Reduction
from keras_ring.mxnet.tensors import NDArray


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An optimizer that averages gradients over all ranks before it updates.

    It is for `mx.mod.Module` and for loops that call `update`. With Gluon,
    `kr.DistributedTrainer` also overlaps reductions with the backward pass.

    Args:
        optimizer: An `mx.optimizer.Optimizer`, whose attributes this one has
            as well.
        gradient_predivide_factor: Float. Gradients are divided by it before
            they are added up, and the mean is multiplied by it. Defaults to
            `1.0`.
        num_groups: Integer, the number of groups of gradients that are reduced
            together, where several are updated in one call. Defaults to `0`,
            each by itself.
        process_set: A `kr.ProcessSet`, whose ranks train together. Defaults to
            all ranks.

    Raises:
        TypeError: If `optimizer` is no optimizer of MXNet.

    Example:
    ```python
    optimizer = kr.DistributedOptimizer(mx.optimizer.create("sgd"))
    module.init_optimizer(kvstore=None, optimizer=optimizer)
    ```
    """

    def __init__(
        self,
        optimizer: mx.optimizer.Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        # The base has attributes that are those of the inner optimizer here,
        # so its constructor is not called.
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise TypeError(
                "`DistributedOptimizer` takes an `mx.optimizer.Optimizer`, "
                "such as `mx.optimizer.create('sgd')`. Received: "
                f"{optimizer!r}"
            )
        reduction = Reduction(
            Average,
            1.0 / gradient_predivide_factor,
            gradient_predivide_factor,
            process_set=process_set,
        )
        # Other attributes are those of the inner optimizer.
        object.__setattr__(self, "inner", optimizer)
        object.__setattr__(self, "_num_groups", num_groups)
        object.__setattr__(self, "_reduction", reduction)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Such as `rescale_grad`, which modules set.
        setattr(self.inner, name, value)

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """Makes the state of a weight."""
        return self.inner.create_state_multi_precision(index, weight)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """Makes the state of a weight."""
        return self.inner.create_state(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages gradients and updates weights by them."""
        self._reduce(index, grad)
        self.inner.update(index, weight, grad, state)

    def update_multi_precision(
        self, index: Any, weight: Any, grad: Any, state: Any
    ) -> None:
        """Averages gradients and updates weights by them."""
        self._reduce(index, grad)
        self.inner.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate."""
        self.inner.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """Sets the factors of the learning rates of weights."""
        self.inner.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """Sets the factors of the weight decay of weights."""
        self.inner.set_wd_mult(args_wd_mult)

    def _reduce(self, index: Any, gradients: Any) -> None:
        if process_sets.shares_nothing(self._reduction.process_set):
            return
        if not isinstance(index, list | tuple):
            index, gradients = [index], [gradients]
        handles = []
        for begin, end in self._bounds(len(index)):
            some: Sequence[NDArray] = gradients[begin:end]
            dense = [tensors.dense(each) for each in some]
            handle = self._reduction.start(
                dense,
                f"gradient/{index[begin]}+{end - begin - 1}",
                "DistributedOptimizer",
                in_place=True,
            )
            handles.append((handle, some))
        for handle, some in handles:
            results = handle.wait()
            for gradient, result in zip(some, results, strict=True):
                if gradient.stype != "default":
                    gradient[:] = result.tostype(gradient.stype)

    def _bounds(self, count: int) -> list[tuple[int, int]]:
        groups = min(self._num_groups, count) if self._num_groups else count
        bounds = [count * i // groups for i in range(groups + 1)]
        return [(bounds[i], bounds[i + 1]) for i in range(groups)]
