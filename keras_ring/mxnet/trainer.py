"""`DistributedTrainer` for models of Gluon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mxnet import gluon

from keras_ring.core import process_sets
from keras_ring.core.docstrings import described
from keras_ring.core.objects import broadcast_object
from keras_ring.core.periodic_check import PeriodicCheck
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Average
from keras_ring.core.wire_formats import Compression, WireFormat
from keras_ring.mxnet import tensors
from keras_ring.mxnet.optimizer import DistributedOptimizer
from keras_ring.mxnet.parameters import rows_of
from keras_ring.mxnet.reductions import Reduction
from keras_ring.mxnet.tensors import NDArray

_ADVICE = (
    "give all ranks those of one by "
    "`kr.broadcast_parameters(net.collect_params(), root_rank=0)`, before the "
    "first step and whenever one rank has loaded some."
)


class DistributedTrainer(gluon.Trainer):
    """A `gluon.Trainer` that averages gradients over all ranks.

    `step(batch_size)` takes the size of this rank's batch, as in one process.
    With equal batches on all ranks, the update is that of one process with all
    of them together.

    The ranks' parameters are compared before the first step, and ever more
    rarely after it.

    Args:
        params: As in `gluon.Trainer`: the result of `block.collect_params()`,
            or a list of parameters.
        optimizer: As in `gluon.Trainer`: a string, or an
            `mx.optimizer.Optimizer`.
        optimizer_params: As in `gluon.Trainer`.
        compression: One of `kr.Compression.none`, `kr.Compression.fp16` and
            `kr.Compression.bf16`. Defaults to `kr.Compression.none`.
        gradient_predivide_factor: Float. Gradients are divided by it before
            they are added up, and the mean is multiplied by it. Defaults to
            `1.0`.
        prefix: String, what the names of the collectives begin with. Programs
            with several trainers give each another one. Defaults to none.
        num_groups: Integer, the number of groups of gradients that are reduced
            together. Defaults to `0`, each by itself.
        process_set: A `kr.ProcessSet`, whose ranks train together. Defaults to
            all ranks.

    Raises:
        ValueError: If `num_groups` is negative.

    Example:
    ```python
    trainer = kr.DistributedTrainer(
        net.collect_params(), "adam", {"learning_rate": 0.01}
    )
    ```
    """

    @described
    def __init__(
        self,
        params: Mapping[str, gluon.Parameter] | Iterable[gluon.Parameter],
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: WireFormat = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if num_groups < 0:
            raise ValueError(
                f"`num_groups` must not be negative. Received: {num_groups}"
            )
        if isinstance(optimizer, DistributedOptimizer):
            # It would reduce once more.
            optimizer = optimizer.inner
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self._reduction = Reduction(
            Average,
            1.0 / gradient_predivide_factor,
            gradient_predivide_factor,
            compression,
            process_set,
        )
        self._prefix = prefix or ""
        self._num_groups = num_groups
        self._names: list[str] = []
        self._check = PeriodicCheck(
            f"{self._prefix}parameters",
            lambda: rows_of(self._params),
            process_set,
            _ADVICE,
        )

    def _allreduce_grads(self) -> None:
        process_set = self._reduction.process_set
        if process_sets.shares_nothing(process_set):
            return
        self._check.before_step()
        if not self._names:
            # Of one rank: another may have made more blocks before.
            self._names = broadcast_object(
                [parameter.name for parameter in self._params],
                process_set.ranks[0],
                f"{self._prefix}names",
                process_set,
            )
        handles = []
        # The last layers first: their gradients are ready first, and the
        # others are computed meanwhile.
        for group in reversed(self._groups()):
            gradients = [self._gradient(index) for index in group]
            dense = [tensors.dense(each) for each in gradients]
            handle = self._reduction.start(
                dense, self._name_of(group), "DistributedTrainer", in_place=True
            )
            handles.append((handle, gradients))
        for handle, gradients in handles:
            results = handle.wait()
            for gradient, result in zip(gradients, results, strict=True):
                if gradient.stype != "default":
                    gradient[:] = result.tostype(gradient.stype)

    def _groups(self) -> list[list[int]]:
        """Returns the indexes of the parameters that are reduced together."""
        trained = [
            index
            for index, parameter in enumerate(self._params)
            if parameter.grad_req != "null"
        ]
        if not self._num_groups:
            return [[index] for index in trained]
        count = min(self._num_groups, len(trained))
        bounds = [len(trained) * i // count for i in range(count + 1)]
        return [trained[bounds[i] : bounds[i + 1]] for i in range(count)]

    def _name_of(self, group: list[int]) -> str:
        name = f"{self._prefix}gradient/{group[0]}.{self._names[group[0]]}"
        return name if len(group) == 1 else f"{name}+{len(group) - 1}"

    def _gradient(self, index: int) -> NDArray:
        parameter = self._params[index]
        gradients = parameter.list_grad()
        if len(gradients) != 1:
            raise ValueError(
                f"Parameter '{parameter.name}' is on {len(gradients)} "
                "contexts, and a rank has one: start as many ranks."
            )
        return gradients[0]
