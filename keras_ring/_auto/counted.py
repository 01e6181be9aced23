"""What a step of the program's own counts in metrics.

What the ranks have counted is added up. So what each counts of its part of a
batch has to make, added up, what one process counts of the batch. Of rows it
does, and of a scalar that is given to `keras.metrics.Mean` as well, if that is
a mean over the rows: it counts by the share of the batch that the rank has. Of
other values, such as a root or a maximum, nobody can tell but by computing
them: where steps are compared (`step_check`), so are the metrics.

A metric of Keras that is given a mean where it takes sums, as a `Sum` of means
or a `Mean` of a value for each class, counts by that share from then on, if it
is found out before the first step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._auto import script, ways, whole_functions
from keras_ring._auto.ways import Way
from keras_ring._keras import compat, keras
from keras_ring._keras.steps import steps
from keras_ring._training import whole_batch
from keras_ring._typing import Metric, Model, Structure, Variable

_NAME = "auto/step_check/metrics"
_BY_SHARE = "_keras_ring_counts_by_share"
_OF_VALUES = (keras.metrics.Mean, keras.metrics.Sum)


class Count(NamedTuple):
    """What one step has counted in a metric that had counted nothing.

    Args:
        metric: A `keras.metrics.Metric`.
        values: Of its variables that are sums.
    """

    metric: Metric
    values: list[npt.NDArray[Any]]


class Counter:
    """Notes what metrics count from now on, from nothing.

    What they had, the caller gives back.

    Args:
        model: A `keras.Model`.
    """

    def __init__(self, model: Model) -> None:
        self._sums = _sums_of(model)
        for _, variables in self._sums:
            for each in variables:
                compat.assign(each, np.zeros_like(compat.as_numpy(each)))

    def counts(self) -> list[Count]:
        """Returns what they have counted."""
        return [
            Count(
                metric, [np.array(compat.as_numpy(each)) for each in variables]
            )
            for metric, variables in self._sums
        ]


def of_share(
    metric: Metric, values: Structure, sample_weight: Structure
) -> tuple[Structure, Structure]:
    """Returns with what a `Mean` or a `Sum` is updated in a step.

    A mean over the rows of this rank counts by their share: that of all ranks
    counts 1, as of one process, also in the state of a metric that Keras 2 has
    among the weights of a model. Where the program has said what a scalar
    counts, that holds.

    Args:
        metric: The metric.
        values: What it is given. Of no rows, a mean may be no number.
        sample_weight: What that counts, or `None`.
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
    """Says which metric counts what does not add up; `None` if all do.

    All ranks must call this.

    Args:
        model: A `keras.Model`, whose step is compared.
        whole: What it has counted of a batch.
        part: What it has of this rank's part.
        rows: Two integers, of the batch and of the part.
        num_bytes: Integer, of the smallest type that was computed in.
        number: Integer, of the batch.
        is_first: Boolean, whether nothing was trained yet, so that a metric
            may still count in another way.
    """
    of_parts = {id(each.metric): each.values for each in part}
    for metric, values in whole:
        own = of_parts.get(id(metric), [])
        if len(own) != len(values) or whole_functions.counts_all(metric):
            continue
        found = ways.possible(values, own, *rows, _NAME, num_bytes)
        if all(Way.SUM in each for each in found):
            continue
        if (
            is_first
            and all(Way.MEAN in each for each in found)
            and isinstance(metric, _OF_VALUES)
            and not hasattr(metric, _BY_SHARE)
        ):
            # Past its own `__setattr__`, which tracks what is set.
            object.__setattr__(metric, _BY_SHARE, True)
            continue
        return _text(model, metric, number)
    return None


def num_by_share(model: Model) -> int:
    """Returns how many metrics count by a share that do not by themselves."""
    return sum(hasattr(metric, _BY_SHARE) for metric, _ in _sums_of(model))


def _sums_of(model: Model) -> list[tuple[Metric, list[Variable]]]:
    """Returns metrics that may be given anything, with their sums.

    Of what Keras itself makes of rows it is known that it adds up.
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
