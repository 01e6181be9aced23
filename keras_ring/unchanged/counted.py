"""The metrics that a step of the program's own updates.

The counts of ranks are added up, so the counts of the parts of a batch must add
up to what one process counts. They do if a metric counts rows. They also do for
a scalar that is given to `keras.metrics.Mean`, if it is a mean over the rows,
because it is weighted by the rank's share of the batch. For other values, such
as a root or a maximum, this can only be found out by computing them: when steps
are compared (`step_check`), so are the metrics.

Some metrics of Keras are given a mean where they expect sums, as a `Sum` of
means or a `Mean` of one value per class. If this is found out before the first
step, they are weighted by the rank's share from then on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import Metric, Model, Structure, Variable
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.optimizer import whole_batch
from keras_ring.unchanged import row_semantics, script, whole_functions
from keras_ring.unchanged.row_semantics import Way

_NAME = "auto/step_check/metrics"
_BY_SHARE = "_keras_ring_counts_by_share"
_OF_VALUES = (keras.metrics.Mean, keras.metrics.Sum)


class Count(NamedTuple):
    """The counts of one step in a metric that was empty before.

    Args:
        metric: A `keras.metrics.Metric`.
        values: List of arrays, the values of its variables that are sums.
    """

    metric: Metric
    values: list[npt.NDArray[Any]]


class Counter:
    """The counts of a model's metrics from now on, beginning with zero.

    The caller has to restore the values that the metrics had.

    Args:
        model: A `keras.Model`.
    """

    def __init__(self, model: Model) -> None:
        self._sums = _sums_of(model)
        for _, variables in self._sums:
            for each in variables:
                compat.assign(each, np.zeros_like(compat.as_numpy(each)))

    def counts(self) -> list[Count]:
        """Returns the counts of each metric so far."""
        return [
            Count(
                metric, [np.array(compat.as_numpy(each)) for each in variables]
            )
            for metric, variables in self._sums
        ]


def of_share(
    metric: Metric, values: Structure, sample_weight: Structure
) -> tuple[Structure, Structure]:
    """Returns values and weights with which a step updates a `Mean` or `Sum`.

    A mean over the rows of this rank is weighted by their share of the batch,
    so that the weights of all ranks add up to 1, as in one process, also in the
    state of a metric that Keras 2 has among the weights of a model. A weight
    that the program gives to a scalar is kept.

    Args:
        metric: The metric.
        values: The values that it is given. A mean over no rows may be NaN.
        sample_weight: The weights that it is given, or `None`.

    Returns:
        A tuple `(values, sample_weight)`.
    """
    step = whole_batch.current()
    if step is None or not step.is_part:
        return values, sample_weight
    is_scalar = not len(getattr(values, "shape", ()))
    is_by_share = hasattr(metric, _BY_SHARE)
    if not is_by_share and not (
        is_scalar and isinstance(metric, keras.metrics.Mean)
    ):
        return values, sample_weight
    share = step.share()
    values = tf.convert_to_tensor(values)
    values = tf.where(share > 0, values, tf.zeros_like(values))
    if sample_weight is None:
        weight = share if is_scalar else tf.fill(tf.shape(values)[:1], share)
        return values, weight
    if is_by_share:
        sample_weight = tf.cast(sample_weight, share.dtype) * share
    return values, sample_weight


def problem_of(
    model: Model,
    whole: list[Count],
    part: list[Count],
    rows: tuple[int, int],
    num_bytes: int,
    number: int,
    *,
    is_first: bool,
) -> str | None:
    """Returns the error for a metric whose counts do not add up.

    All ranks must call this.

    Args:
        model: A `keras.Model`, whose step is compared.
        whole: List of the `Count`s of the whole batch.
        part: List of the `Count`s of this rank's part.
        rows: Tuple of two integers, the rows of the batch and of the part.
        num_bytes: Integer, the bytes of the smallest type of the computation.
        number: Integer, the number of the batch.
        is_first: Boolean, whether nothing was trained yet, so that a metric
            may still be weighted by the rank's share.

    Returns:
        String, or `None` if all counts add up.
    """
    of_parts = {id(each.metric): each.values for each in part}
    for metric, values in whole:
        own = of_parts.get(id(metric), [])
        if len(own) != len(values) or whole_functions.counts_all(metric):
            continue
        found = row_semantics.possible(values, own, *rows, _NAME, num_bytes)
        if all(Way.SUM in each for each in found):
            continue
        if (
            is_first
            and all(Way.MEAN in each for each in found)
            and isinstance(metric, _OF_VALUES)
            and not hasattr(metric, _BY_SHARE)
        ):
            # Bypasses its own `__setattr__`, which tracks attributes.
            object.__setattr__(metric, _BY_SHARE, True)
            continue
        return _text(model, metric, number)
    return None


def num_by_share(model: Model) -> int:
    """Returns the number of metrics that were set to count by a share."""
    return sum(hasattr(metric, _BY_SHARE) for metric, _ in _sums_of(model))


def _sums_of(model: Model) -> list[tuple[Metric, list[Variable]]]:
    """Returns metrics whose counts may not add up, with their sums.

    Metrics of Keras that count each row by itself are known to add up.
    """
    known = {id(each) for each in compat.metrics_variables(model)}
    found = []
    metrics = {id(each): each for each in whole_functions.metrics_of(model)}
    for metric in metrics.values():
        if type(metric) not in _OF_VALUES and steps.is_by_rows(metric):
            continue
        sums = [
            each
            for each in metric.variables
            if id(each) in known and compat.aggregation(each) == "sum"
        ]
        if sums:
            found.append((metric, sums))
    return found


def _text(model: Model, metric: Metric, number: int) -> str:
    return (
        f"The step of model {model.name!r} ({script.line()}) updates metric "
        f"{metric.name!r} (class {type(metric).__name__}) with what is neither "
        "a mean nor a sum over the rows of a batch (a root, a maximum, a norm "
        f"of gradients): what the parts of batch {number:,} leave in it does "
        "not make what the whole batch leaves. Give a function of `y_true` and "
        "`y_pred` to `compile(metrics=[...])`, where it is computed of all "
        "rows; or update the metric with a mean over the rows, and take the "
        "root of its result in a callback; or leave it out of the step."
    )
