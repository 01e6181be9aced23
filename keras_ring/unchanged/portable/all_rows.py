"""Losses and metrics of the program's own, computed of the rows of all ranks.

A function that a model is compiled with may compare rows, or divide by a count
of some. So each rank calls it with the rows of all ranks, and has the value of
one process. Of its gradient, a rank uses that of its own rows, divided by the
share of them that the step applies (`parts`).

A metric that is updated so has counted all rows on each rank, and is not added
up over them.
"""

from __future__ import annotations

from collections.abc import Callable

from keras_ring._typing import Metric, Model, Structure, Tensor, Variable
from keras_ring.core.process_sets import global_process_set
from keras_ring.core.reduce_ops import Sum
from keras_ring.errors import AutoError
from keras_ring.keras import scope
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, events, hooks, keras
from keras_ring.keras.lanes.keras3_functions import (
    is_by_rows,
    mask_of,
    set_mask,
)
from keras_ring.keras.lanes.rings import Ring
from keras_ring.unchanged import script
from keras_ring.unchanged.portable import parts
from keras_ring.unchanged.portable.parts import PartStep

_PURPOSE = "a function of the program's own is computed of all rows"
_COUNTS_ALL = "_keras_ring_counts_all_rows"


def install() -> None:
    """Changes how Keras calls losses and metrics. Once is enough."""
    hooks.subscribe(
        events.LOSS_CALLED, _loss_of_all, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.METRICS_UPDATED,
        _update_metrics,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.MEAN_UPDATED, _of_share, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )


def counts_all(metric: Metric) -> bool:
    """Returns whether a metric counts the rows of all ranks on each rank.

    Args:
        metric: A `keras.metrics.Metric`.
    """
    return hasattr(metric, _COUNTS_ALL)


def variables_of_ranks(model: Model) -> tuple[list[Variable], list[Variable]]:
    """Returns the variables of metrics of parts and of whole batches.

    Args:
        model: A `keras.Model`, which was trained on parts of batches.

    Returns:
        A tuple of two lists: the variables in which ranks count their own rows,
        and those in which each rank counts all rows.
    """
    compiled = getattr(model, compat.COMPILED_METRICS, None)
    metrics = [*model.metrics, *(getattr(compiled, "metrics", None) or ())]
    whole = {
        id(variable)
        for metric in metrics
        if isinstance(metric, keras.metrics.Metric) and counts_all(metric)
        for variable in metric.variables
    }
    found: tuple[list[Variable], list[Variable]] = [], []
    for variable in compat.metrics_variables(model):
        found[id(variable) in whole].append(variable)
    return found


def refuse_no_sum(metric: Metric, problem: str) -> None:
    """Refuses a metric whose state does not add up, but has to.

    Args:
        metric: A metric of the program's own.
        problem: String, why its state does not add up.

    Raises:
        AutoError: If it counts this rank's rows alone.
    """
    if counts_all(metric):
        return
    raise AutoError(
        f"{script.line()} updates metric {metric.name!r} (class "
        f"{type(metric).__name__}) with the rows of one rank, and what the "
        f"ranks have counted does not add up: {problem}. Keep sums and counts, "
        "and make the result of them in `result()`; or give the metric to "
        "`compile(metrics=[...])`, where it is updated with all rows."
    )


def _of_share(
    metric: Metric, values: Structure, sample_weight: Structure
) -> tuple[Structure, Structure]:
    """Returns values and weights that a `Mean` is updated with in a step.

    A scalar, as a mean over the rows of this rank, counts with the share of
    them, so that the weights of all ranks add up to 1, as in one process.
    """
    step = parts.current()
    if (
        isinstance(step, PartStep)
        and sample_weight is None
        and isinstance(metric, keras.metrics.Mean)
        and not len(getattr(values, "shape", ()))
    ):
        return values, step.share
    return values, sample_weight


def _loss_of_all(
    loss: Callable[..., Tensor],
    y_true: Structure,
    y_pred: Structure,
    sample_weight: Structure,
) -> Tensor:
    given = y_true, y_pred, sample_weight
    step = parts.current()
    if not isinstance(step, PartStep):
        return loss(*given)
    given = _of_all_ranks(step, given)
    with scope.inside(part=parts.WholeStep()):
        return loss(*given)


def _update_metrics(
    metrics: list[Metric],
    y_true: Structure,
    y_pred: Structure,
    sample_weight: Structure,
) -> None:
    step = parts.current()
    given = y_true, y_pred, sample_weight
    own: list[Metric] = []
    if isinstance(step, PartStep):
        own = [each for each in metrics if not is_by_rows(each)]
    for metric in metrics:
        if metric not in own:
            metric.update_state(y_true, y_pred, sample_weight=sample_weight)
    if not own or not isinstance(step, PartStep):
        return
    y_true, y_pred, sample_weight = _of_all_ranks(step, given)
    with scope.inside(part=parts.WholeStep()):
        for metric in own:
            # Bypasses its own `__setattr__`, which tracks attributes.
            object.__setattr__(metric, _COUNTS_ALL, True)
            metric.update_state(y_true, y_pred, sample_weight=sample_weight)


def _of_all_ranks(step: PartStep, given: Structure) -> Structure:
    """Returns the rows of all ranks, with their masks."""

    def of_leaf(leaf: Tensor) -> Tensor:
        if not getattr(leaf, "shape", ()):
            return leaf
        if not backend.is_tensor(leaf):
            leaf = keras.ops.convert_to_tensor(leaf)
        whole = _rows_of_all(step, leaf)
        mask = mask_of(leaf)
        if mask is not None:
            set_mask(whole, _rows_of_all(step, mask))
        return whole

    return backend.map_structure(of_leaf, given)


def _rows_of_all(step: PartStep, own: Tensor) -> Tensor:
    """Returns the rows of all ranks; a gradient flows to those of this one."""
    ops = keras.ops
    kind = keras.backend.standardize_dtype(own.dtype)
    # A rank without rows has one in their place.
    own = own[: step.end - step.begin]
    carried = ops.stop_gradient(own)
    if kind == "bool":
        carried = ops.cast(carried, "int32")
    others = [
        ops.zeros((count, *own.shape[1:]), carried.dtype)
        for count in (step.begin, step.rows - step.end)
    ]
    (name,) = backend.unique_names("auto", ["rows_of_all"])
    # Other ranks have zeros where a rank has its rows.
    whole = ops.cast(
        backend.allreduce(
            ops.concatenate([others[0], carried, others[1]]),
            Sum,
            name=name,
            process_set=global_process_set,
        ),
        kind,
    )
    if not backend.is_floating(own):
        return whole
    whole = ops.stop_gradient(whole)
    mine = backend.with_gradient_factor(
        own, 1.0, lambda _: backend.as_tensor(1.0 / (step.share or 1.0))
    )
    return ops.concatenate([whole[: step.begin], mine, whole[step.end :]])
