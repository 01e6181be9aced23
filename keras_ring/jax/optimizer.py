"""An Optax optimizer that reduces gradients before it uses them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from keras_ring.core.docstrings import described
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Average, ReduceOp
from keras_ring.core.wire_formats import Compression, WireFormat
from keras_ring.jax.collectives import allreduce


@described
def DistributedOptimizer(
    optimizer: Any,
    *,
    op: ReduceOp = Average,
    compression: WireFormat = Compression.none,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = True,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    name: str = "DistributedOptimizer",
) -> Any:
    """Makes an Optax optimizer use the gradients of all ranks.

    All gradients of a step are reduced together. They must be of the same
    shapes on all ranks, and all ranks must begin with the same parameters: see
    `kr.broadcast`.

    Args:
        optimizer: An `optax.GradientTransformation`.
        op: {{op}}
        compression: One of `kr.Compression.none`, `kr.Compression.fp16` and
            `kr.Compression.bf16`. Defaults to `kr.Compression.none`.
        backward_passes_per_step: Integer, the number of updates whose gradients
            are added up on this rank before they are reduced and used; until
            then, the updates are zero. Defaults to `1`.
        average_aggregated_gradients: Boolean, whether the sum of several passes
            is divided by their number. Defaults to `True`.
        gradient_predivide_factor: Float, by which gradients are divided before
            they are summed; their sum is multiplied by it and divided by the
            number of ranks. With another value than `1.0`, `op` must be
            `kr.Average`. Defaults to `1.0`.
        process_set: {{process_set}}
        name: String, the name of the reduction, the same on all ranks. Give
            optimizers that run in one compiled function names of their own.
            Defaults to `"DistributedOptimizer"`.

    Returns:
        An `optax.GradientTransformationExtraArgs`. Its state is that of
        `optimizer`, or, with several passes, one that has it as `inner`.

    Raises:
        ValueError: If a number is out of range.

    Example:
    ```python
    optimizer = kr.DistributedOptimizer(optax.adam(1e-3))
    parameters, state = kr.broadcast((parameters, optimizer.init(parameters)))

    @jax.jit
    def step(parameters, state, batch):
        gradients = jax.grad(loss_of)(parameters, batch)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state
    ```
    """
    import optax

    if backward_passes_per_step < 1:
        raise ValueError(
            "`backward_passes_per_step` must be at least 1. Received: "
            f"{backward_passes_per_step}"
        )
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError(
            "`gradient_predivide_factor` needs `op=kr.Average`. Received: "
            f"op={op!r}"
        )
    inner = optax.with_extra_args_support(optimizer)
    passes = backward_passes_per_step
    factor = 1.0 / passes if average_aggregated_gradients else 1.0

    def update(
        gradients: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        reduced = allreduce(
            gradients,
            op,
            name=name,
            prescale_factor=factor / gradient_predivide_factor,
            postscale_factor=gradient_predivide_factor,
            compression=compression,
            process_set=process_set,
        )
        found = inner.update(reduced, state, params, **extra)
        return found[0], found[1]

    ours = optax.GradientTransformationExtraArgs(inner.init, update)
    return ours if passes == 1 else _with_passes(ours, passes)


class AccumulatedState(NamedTuple):
    """The state of an optimizer that adds up gradients of several passes.

    Attributes:
        inner: The state of the optimizer.
        passes: Integer scalar, the number of passes since its last update.
        gradients: The sums of their gradients on this rank.
    """

    inner: Any
    passes: Any
    gradients: Any


def _with_passes(optimizer: Any, passes: int) -> Any:
    """Makes an optimizer use the sums of gradients of several passes.

    `optax.MultiSteps` calls the optimizer, which reduces, in each pass.
    """
    import optax

    def init(params: Any) -> AccumulatedState:
        return AccumulatedState(
            optimizer.init(params),
            jnp.zeros([], jnp.int32),
            jax.tree.map(jnp.zeros_like, params),
        )

    def update(
        gradients: Any,
        state: AccumulatedState,
        params: Any = None,
        **extra: Any,
    ) -> tuple[Any, AccumulatedState]:
        sums = jax.tree.map(jnp.add, state.gradients, gradients)
        count = state.passes + 1

        def use() -> tuple[Any, AccumulatedState]:
            updates, inner = optimizer.update(
                sums, state.inner, params, **extra
            )
            nothing = jax.tree.map(jnp.zeros_like, sums)
            return updates, AccumulatedState(
                inner, jnp.zeros_like(count), nothing
            )

        def wait() -> tuple[Any, AccumulatedState]:
            updates = jax.tree.map(
                lambda each: jnp.zeros(each.shape, each.dtype),
                jax.eval_shape(use)[0],
            )
            return updates, AccumulatedState(state.inner, count, sums)

        found = jax.lax.cond(count == passes, use, wait)
        return found[0], found[1]

    return optax.GradientTransformationExtraArgs(init, update)


def metric_average(values: Any, name: str = "metrics") -> Any:
    """Averages numbers over all ranks, such as the results of an evaluation.

    Args:
        values: A pytree of numbers or arrays.
        name: String, the name of the reduction. Defaults to `"metrics"`.

    Returns:
        A pytree of the same structure, of floating-point arrays.

    Example:
    ```python
    loss, accuracy = kr.metric_average((loss, accuracy))
    ```
    """
    floats = jax.tree.map(lambda each: jnp.asarray(each, float), values)
    return allreduce(floats, name=name)
