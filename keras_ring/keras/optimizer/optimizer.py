"""Makes an optimizer reduce its gradients over all ranks.

The optimizer is not wrapped in another one: its class is changed to a subclass
of the same name. So it keeps its slots, its iterations and its schedule,
`isinstance` holds, and a saved model names an optimizer that Keras knows. The
code for each family of optimizers is in `keras3_optimizer`, `keras2_optimizer`
and `v1_optimizer`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from keras_ring._typing import Layer, Optimizer, Variable
from keras_ring.core import reduce_ops, topology
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.wire_formats import WireFormat
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import families, keras
from keras_ring.keras.optimizer.local_variables import local_variables_of
from keras_ring.keras.optimizer.mixin import Distribute, make_distributed
from keras_ring.keras.optimizer.reduction import ReductionSettings


@takes_horovods(
    "name device_dense device_sparse compression sparse_as_dense "
    "gradient_predivide_factor op backward_passes_per_step "
    "average_aggregated_gradients num_groups groups process_set "
    "scale_local_gradients",
    "name use_locking device_dense device_sparse compression sparse_as_dense "
    "backward_passes_per_step op gradient_predivide_factor "
    "average_aggregated_gradients num_groups groups process_set "
    "scale_local_gradients",
)
def DistributedOptimizer(
    optimizer: Optimizer,
    op: reduce_ops.ReduceOp = reduce_ops.Average,
    *,
    compression: WireFormat = backend.Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    gradient_predivide_factor: float = 1.0,
    groups: int | Sequence[Sequence[Variable]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    weighted: bool = False,
    elastic: bool | None = None,
) -> Optimizer:
    """Makes an optimizer reduce its gradients over all ranks.

    The optimizer given is changed in place and returned. Whatever state it
    has, it keeps. It works in `model.fit` and in loops that call `apply` or
    `apply_gradients`. A model compiled with it and saved by `model.save`
    loads with plain Keras, with the state of the optimizer; use
    `kr.load_model` to go on training in a job.

    Do not use it together with `DistributedGradientTape`: the gradients would
    be reduced twice, which is an error. So is making an optimizer distributed
    again with other settings; with the same it changes nothing.

    Args:
        optimizer: An optimizer of Keras 3 or Keras 2 (`tf.keras` up to
            TensorFlow 2.15, its `legacy` ones too, and `tf_keras`), one of
            `tf.compat.v1.train`, or the name of a Keras optimizer. A
            `LossScaleOptimizer` may be given; it is also right to give its
            inner optimizer and to leave the rest to `model.compile`.
        op: How gradients are combined: `kr.Average`, `kr.Sum`, `kr.Min`,
            `kr.Max`, `kr.Product` or `kr.Adasum`. Defaults to `kr.Average`.
        compression: The number format of gradients on the wire, one of
            `kr.Compression.none`, `kr.Compression.fp16` and
            `kr.Compression.bf16`. Defaults to `kr.Compression.none`.
        sparse_as_dense: Boolean. If `True`, `tf.IndexedSlices` (gradients of
            embeddings) are made dense and summed, otherwise their rows are
            gathered. Defaults to `False`.
        backward_passes_per_step: Integer, how many gradients are added up on
            each rank before they are reduced and used. With Keras 3 it is
            `gradient_accumulation_steps`. Defaults to `1`.
        average_aggregated_gradients: Boolean, whether their sum is divided by
            that number. Defaults to `False`.
        gradient_predivide_factor: Float. With `kr.Average`, gradients are
            divided by this before the sum and by the rest of the number of
            ranks after it. It keeps sums in float16 in range. Defaults to
            `1.0`.
        groups: Gradients that are reduced together or not at all: a number of
            groups to make, or a list of lists of variables. Defaults to
            `None`, which lets the runtime decide.
        process_set: A `kr.ProcessSet`. Only its ranks take part, as where
            each process set trains a model of its own; others keep their own
            gradients. Defaults to all ranks.
        scale_local_gradients: Boolean. With `kr.Average`, gradients of
            variables that were registered by `register_local_var` are divided
            by the number of ranks, as their part in the average of the losses
            is. Defaults to `True`.
        weighted: Boolean. With `kr.Average`, whether ranks are weighted by the
            divisors of their losses, such as the number of tokens that are not
            masked, so that the result is the mean over the whole batch. It
            works in `fit` with losses of `keras.losses`; in a loop of your
            own, use that argument of the tape. Defaults to `False`.
        elastic: Boolean, whether the training goes on without ranks that are
            lost, in a job that `keras-ring run --elastic` has started. Each
            step then counts on all ranks that are left, or on none. Optimizers
            of Keras 3 on TensorFlow, with one backward pass per update and
            without local variables. Defaults to `None`, which means: if it can.
            With `False`, a training in such a job ends with an error if a rank
            is lost at the wrong moment.

    Returns:
        `optimizer`, which now reduces. It has one more method,
        `register_local_var(var)`: the gradients of that variable stay with
        their rank.

    Raises:
        ValueError: If an argument has no meaning, alone or with the others.

    Example:
    ```python
    kr.init()
    optimizer = kr.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, loss="sparse_categorical_crossentropy")
    model.fit(x, y)
    ```
    """
    if elastic is None:
        elastic = topology.is_elastic() and _can_be_elastic(
            optimizer, backward_passes_per_step
        )
    settings = ReductionSettings(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        weighted=weighted,
        elastic=elastic,
    )
    return distribute_optimizer(optimizer, settings)


def _can_be_elastic(optimizer: Optimizer, passes: int) -> bool:
    """Returns whether each update of an optimizer can be an elastic step."""
    if families.is_v1(optimizer) or families.keras2_of(optimizer):
        return False
    adds_up = getattr(optimizer, "gradient_accumulation_steps", None)
    return backend.name() == "tensorflow" and passes == 1 and not adds_up


def distribute_optimizer(
    optimizer: Optimizer, settings: ReductionSettings
) -> Optimizer:
    """Makes an optimizer reduce its gradients, and returns it.

    Args:
        optimizer: As for `DistributedOptimizer`.
        settings: A `ReductionSettings`.
    """
    if not families.keras2_of(optimizer) and not families.is_v1(optimizer):
        optimizer = keras.optimizers.get(optimizer)
    distribute = _distribute_of(optimizer, settings)
    return make_distributed(optimizer, settings, distribute)


@takes_horovods(
    "name device_dense device_sparse compression sparse_as_dense "
    "gradient_predivide_factor op backward_passes_per_step "
    "average_aggregated_gradients groups process_set local_layers "
    "scale_local_gradients",
)
@described
def PartialDistributedOptimizer(
    optimizer: Optimizer,
    local_layers: Layer | Iterable[Layer] | None = (),
    op: reduce_ops.ReduceOp = reduce_ops.Average,
    **settings: Any,
) -> Optimizer:
    """Makes an optimizer reduce all gradients but those of some layers.

    The weights of those layers are trained by each rank on its own data, and
    differ between ranks.

    Args:
        optimizer: An optimizer of Keras 3, Keras 2 or `tf.compat.v1.train`, or
            the name of a Keras optimizer.
        local_layers: A layer, or a list of layers. They may have no weights
            yet.
        op: {{op}}
        **settings: The other arguments of `DistributedOptimizer`.

    Returns:
        `optimizer`, which now reduces.

    Example:
    ```python
    adapter = keras.layers.Dense(16)
    optimizer = kr.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.1), local_layers=[adapter]
    )
    ```
    """
    # An elastic step has no local variables yet.
    settings.setdefault("elastic", False)
    optimizer = DistributedOptimizer(optimizer, op, **settings)
    if local_layers is not None and not isinstance(local_layers, Iterable):
        local_layers = [local_layers]
    for layer in local_layers or ():
        local_variables_of(optimizer).add_layer(layer)
    return optimizer


def _distribute_of(
    optimizer: Optimizer, settings: ReductionSettings
) -> Distribute:
    """Returns the function that makes an optimizer of its family reduce."""
    is_v1 = families.is_v1(optimizer)
    keras2 = families.keras2_of(optimizer)
    if settings.weighted and (is_v1 or keras2):
        raise ValueError(
            "`weighted=True` is for optimizers of Keras 3. With others, "
            "give `tape.gradient(loss, sources, weight=...)` of a "
            "`kr.DistributedGradientTape` what the loss was divided by. "
            f"Received: optimizer={optimizer!r}"
        )
    if settings.elastic and (is_v1 or keras2):
        raise ValueError(
            "`elastic=True` is for optimizers of Keras 3. Received: "
            f"optimizer={optimizer!r}"
        )
    name = "keras2_optimizer" if keras2 else "keras3_optimizer"
    # Each of them needs a library that this program may not have.
    module = importlib.import_module(
        f"keras_ring.keras.optimizer.{'v1_optimizer' if is_v1 else name}"
    )
    distribute: Distribute = module.distribute
    return distribute
