"""Combines the state of metrics over ranks.

It also detects metrics whose state is declared as a sum and is not. The state
of a metric is added up over ranks if its variables declare "sum", which is the
default of Keras. Then a maximum of 2 and one of 3 would become 5. A test needs
no data: if state is a sum and starts at zero, its value after two batches is
the sum of its values after each of them. Each metric is tested once, at its
first call, with random numbers in the shapes of its arguments. Keras' own
metrics are known to be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from keras_ring._typing import Metric, Model, Structure, Variable
from keras_ring.core import arrays, reduce_ops
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, keras

_WATCHED = "_keras_ring_watched"
_IS_SUM = "_keras_ring_is_sum"
# A function of a metric and of a text that says what is wrong with its state.
Refuse = Callable[[Metric, str], None]
_UNKNOWN = 4  # the size that replaces an unknown dimension
_TOLERANCE = 1e-3  # relative to the largest value: sums in another order


def watch(model: Model, refuse: Refuse | None = None) -> None:
    """Sets up a test of the metrics of a model at their first call.

    Args:
        model: A `keras.Model`.
        refuse: Function that is called, in the first call, with a metric that
            fails and a text such as "variable 'total' is 3 ...". Defaults to
            one that raises a `ValueError`.
    """
    for metric in _metrics_of_users(model):
        if not hasattr(metric, _WATCHED):
            object.__setattr__(metric, _WATCHED, True)
            _watch(metric, refuse or _refuse)


def combine(
    variables: list[Variable],
    process_set: ProcessSet = global_process_set,
    name: str = "metrics",
) -> None:
    """Combines the state of metrics over all ranks, in place.

    Args:
        variables: Variables of metrics.
        process_set: A `kr.ProcessSet`, whose ranks combine the state. Defaults
            to all ranks.
        name: String, the prefix of the names of the collectives.
    """
    by_aggregation: dict[str, list[Variable]] = {
        "sum": [],
        "mean": [],
        "none": [],
    }
    for variable in {id(v): v for v in variables}.values():
        by_aggregation[compat.aggregation(variable)].append(variable)
    for aggregation, op in (
        ("sum", reduce_ops.Sum),
        ("mean", reduce_ops.Average),
    ):
        variables = by_aggregation[aggregation]
        if not variables:
            continue
        combined = arrays.allreduce_group(
            [compat.as_numpy(variable) for variable in variables],
            op,
            name=f"{name}/{aggregation}",
            process_set=process_set,
        )
        for variable, value in zip(variables, combined, strict=True):
            variable.assign(value)
    for position, variable in enumerate(by_aggregation["none"]):
        value = arrays.broadcast(
            compat.as_numpy(variable),
            process_set.ranks[0],
            name=f"{name}/none/{position}",
            process_set=process_set,
        )
        variable.assign(value)


def are_sums(model: Model) -> bool:
    """Returns whether the state of each metric of a model is known as a sum.

    The state of a user's metric is unknown until the metric was tested.

    Args:
        model: A `keras.Model`.
    """
    return all(hasattr(each, _IS_SUM) for each in _metrics_of_users(model))


def _metrics_of_users(model: Model) -> list[Metric]:
    """Returns the metrics of a model whose classes are not Keras' own.

    With Keras 2 and several outputs, only a later `fit` finds all of them.
    """
    given = getattr(model, compat.COMPILED_METRICS, None)
    found = [
        *model.metrics,
        *getattr(given, "metrics", ()),
        *backend.flatten(getattr(given, "_user_metrics", None)),
        *backend.flatten(getattr(given, "_user_weighted_metrics", None)),
    ]
    return [
        metric
        for metric in {id(each): each for each in found}.values()
        if isinstance(metric, keras.metrics.Metric)
        and type(metric).update_state.__module__.split(".")[0]
        not in ("keras", "tf_keras")
    ]


def _watch(metric: Metric, refuse: Refuse) -> None:
    update_state = metric.update_state
    # Keras 2 gives each metric a method of its own.
    of_class = "update_state" not in vars(metric)

    def try_and_update(*args: Any, **kwargs: Any) -> Any:
        if of_class:
            object.__delattr__(metric, "update_state")
        else:
            object.__setattr__(metric, "update_state", update_state)
        with backend.outside_of_traces():
            problem = _problem(metric, update_state, args, kwargs)
        if problem is not None:
            refuse(metric, problem)
        return update_state(*args, **kwargs)

    object.__setattr__(metric, "update_state", try_and_update)


def _problem(
    metric: Metric,
    update: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str | None:
    """Tests a metric, and returns what is wrong with it, or `None`."""
    rng = np.random.default_rng(0)
    before = [np.array(compat.as_numpy(v)) for v in metric.variables]
    try:
        batches = [_made_up((args, kwargs), rng) for _ in range(2)]
        one, two, both = (
            _state_after(metric, update, some)
            for some in (batches[:1], batches[1:], batches)
        )
        start = _state_after(metric, update, [])
    except Exception as error:
        # Some metrics refuse such numbers. Their declaration is trusted.
        logging.debug("keras_ring: %s was not tried: %s", metric.name, error)
        return None
    finally:
        for variable, value in zip(metric.variables, before, strict=False):
            variable.assign(value)
    is_sum = True
    for index, variable in enumerate(metric.variables):
        if compat.aggregation(variable) != "sum":
            is_sum = False
            continue
        values = [np.asarray(s[index], np.float64) for s in (one, two, both)]
        scale = max(float(np.max(np.abs(v), initial=0.0)) for v in values)
        if np.any(start[index]) or not np.allclose(
            values[0] + values[1],
            values[2],
            rtol=0.0,
            atol=_TOLERANCE * scale,
        ):
            return _text(variable, start[index], values)
    if is_sum:
        object.__setattr__(metric, _IS_SUM, True)
    return None


def _state_after(
    metric: Metric, update: Callable[..., object], batches: list[Structure]
) -> list[npt.NDArray[Any]]:
    metric.reset_state()
    for args, kwargs in batches:
        update(*args, **kwargs)
    return [np.array(compat.as_numpy(v)) for v in metric.variables]


def _made_up(arguments: Structure, rng: np.random.Generator) -> Structure:
    """Returns a structure with random numbers in place of tensors."""

    def number_for(value: Any) -> Any:
        if not backend.is_tensor(value):
            return value
        shape = [_UNKNOWN if n is None else n for n in value.shape]
        made: npt.NDArray[Any]
        if backend.is_floating(value):
            made = rng.uniform(0.1, 0.9, shape)
        else:
            made = rng.integers(0, 2, shape)
        return backend.cast(made, value.dtype)

    return backend.map_structure(number_for, arguments)


def _text(
    variable: Variable,
    start: npt.NDArray[Any],
    values: list[npt.NDArray[Any]],
) -> str:
    shown = [float(np.ravel(v)[0]) if v.size else 0.0 for v in values]
    why = (
        f"starts at {float(np.ravel(start)[0]):g} and not at 0"
        if np.any(start)
        else f"is {shown[0]:g} after one batch, {shown[1]:g} after another and "
        f"{shown[2]:g} after both"
    )
    return f"variable {variable.name!r} {why}"


def _refuse(metric: Metric, problem: str) -> None:
    raise ValueError(
        f"The state of metric {metric.name!r} (class "
        f"{type(metric).__name__}) cannot be added up over ranks: {problem}. "
        "`MetricAverageCallback` would give a wrong "
        "result. Keep sums and counts, and make the result of them in "
        "`result()`; or say how the variable is combined: "
        f"{compat.AGGREGATIONS} for what is the same on all ranks."
    )
