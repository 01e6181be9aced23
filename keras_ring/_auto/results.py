"""Metrics and predictions of all ranks, as one process has them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring._auto import passes, states
from keras_ring._auto.passes import Pass
from keras_ring._inference import inference
from keras_ring._inference.parts import part_of
from keras_ring._keras import compat, keras
from keras_ring._keras.patching import patch_once
from keras_ring._keras.steps import steps
from keras_ring._ops import reduce_ops, reductions
from keras_ring._ops.objects import broadcast_object
from keras_ring._runtime import topology
from keras_ring._runtime.process_sets import global_process_set
from keras_ring._training import whole_batch
from keras_ring._typing import Logs, Model, Structure, Tensor
from keras_ring.callbacks.metric_average import combine_metric_state

_PURPOSE = "the results are those of one process"
_BATCH_SIZE = 32  # Keras' default
_OF_ALL = "_keras_ring_state_of_all"


def install() -> None:
    """Changes the models and the means of Keras. Once is enough."""
    model = keras.Model
    patch_once(model, compat.METRICS_RESULT_METHOD, _of_all_ranks, _PURPOSE)
    patch_once(model, "evaluate", _evaluated, _PURPOSE)
    patch_once(model, "reset_metrics", _reset, _PURPOSE)
    patch_once(model, "predict", _predicted, _PURPOSE)
    steps.hook_means(_weight_of_step, _PURPOSE)


def _weight_of_step() -> Tensor | None:
    """Returns what a mean over the rows of this rank counts.

    That of all ranks counts 1, as of one process: also in the state of a metric
    that Keras 2 has among the weights of a model.
    """
    step = whole_batch.current()
    return step.share() if step is not None and step.is_part else None


def _of_all_ranks(results: Callable[..., Logs]) -> Callable[..., Logs]:
    @functools.wraps(results)
    def results_of_all_ranks(self: Model, logs: Logs) -> Logs:
        running = passes.current()
        if running is None or running.model is not self:
            return results(self, logs)
        name = "auto/fit" if running.is_training else "auto/evaluate"
        if running.digests is not None:
            running.digests.require_same(f"{name}/data")
        if not running.is_split:
            # Those of one rank: all go by the same.
            own = tf.nest.map_structure(float, dict(results(self, logs)))
            shared: Logs = broadcast_object(own, name=f"{name}/results")
            return shared
        return combined(self, logs, name)

    return results_of_all_ranks


def combined(model: Model, logs: Logs, name: str) -> Logs:
    """Returns the results of all ranks; metrics are left in their state.

    Args:
        model: A `keras.Model`.
        logs: What the last step has returned.
        name: String, what the names of the collectives begin with.
    """
    _leave_to_one(model)
    combine_metric_state(
        compat.metrics_variables(model), global_process_set, f"{name}/metrics"
    )
    of_metrics: Logs = model.get_metrics_result()
    if not isinstance(logs, dict):
        return of_metrics
    # As Keras shows them. What a step of the program's own has returned: of
    # metrics, what they are now; of the rest, the mean.
    flat = dict(_flat(logs))
    others = {key: flat[key] for key in sorted(set(flat) - set(of_metrics))}
    # Keras 2 has made numbers of Python of them.
    leaves = [np.asarray(leaf, np.float64) for leaf in tf.nest.flatten(others)]
    if leaves:
        leaves = reductions.grouped_allreduce(
            leaves, op=reduce_ops.Average, name=f"{name}/logs"
        )
    averaged = tf.nest.pack_sequence_as(others, leaves)
    found = _replaced(logs, {**of_metrics, **averaged})
    numbers: Logs = tf.nest.map_structure(
        lambda each: np.asarray(each)[()], found
    )
    return numbers


def note_state_of_all(model: Model) -> None:
    """Notes that the metrics of all ranks are in the same state.

    An evaluation between steps leaves it so. Keras goes on counting from there,
    until it resets the metrics.

    Args:
        model: A `keras.Model`.
    """
    variables = compat.metrics_variables(model)
    state = [np.array(compat.as_numpy(each)) for each in variables]
    # Past the model's own `__setattr__`, which tracks what is set.
    object.__setattr__(model, _OF_ALL, state)


def _leave_to_one(model: Model) -> None:
    """Takes what all ranks have counted out of the sums of all but one."""
    state = vars(model).get(_OF_ALL)
    if state is None or topology.rank() == 0:
        return
    for variable, value in zip(
        compat.metrics_variables(model), state, strict=False
    ):
        if compat.aggregation(variable) == "sum":
            compat.assign(variable, compat.as_numpy(variable) - value)


def _reset(reset: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(reset)
    def reset_metrics(self: Model) -> None:
        reset(self)
        object.__setattr__(self, _OF_ALL, None)

    return reset_metrics


def _replaced(logs: Logs, values: Logs) -> Logs:
    """Returns results of the same structure, whose order Keras goes by."""
    return {
        key: _replaced(value, values)
        if isinstance(value, dict)
        else values[key]
        for key, value in logs.items()
    }


def _flat(logs: Logs) -> Iterator[tuple[str, Any]]:
    """Yields results by name, also those in dictionaries inside."""
    for key, value in logs.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value


def weighted_logs(model: Model, logs: Structure) -> Structure:
    """Returns what a step has returned, so that its mean is over the batch.

    Args:
        model: A `keras.Model`.
        logs: What its `train_step` has returned.
    """
    step = whole_batch.current()
    if step is None or step.is_even or not isinstance(logs, dict):
        return logs
    return _weighted(logs, step.factor(), set(model.get_metrics_result()))


def _weighted(logs: Logs, weight: Tensor, of_metrics: set[str]) -> Logs:
    def times_weight(value: Tensor) -> Tensor:
        value = tf.convert_to_tensor(value)
        if value.dtype.is_floating:
            # Of no rows, a mean is no number.
            return tf.math.multiply_no_nan(value, tf.cast(weight, value.dtype))
        return value * tf.cast(weight, value.dtype)

    found = {}
    for key, value in logs.items():
        if key in of_metrics:
            found[key] = value
        elif isinstance(value, dict):
            found[key] = _weighted(value, weight, of_metrics)
        else:
            found[key] = tf.nest.map_structure(times_weight, value)
    return found


def _evaluated(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(evaluate)

    @functools.wraps(evaluate)
    def evaluate_on_ranks(self: Model, *args: Any, **kwargs: Any) -> Any:
        wanted = parameters.bind(self, *args, **kwargs).arguments
        if not passes.is_of_all_ranks(self, wanted.get("x")):
            return evaluate(self, *args, **kwargs)
        with passes.running(Pass(self, is_training=False)):
            found = evaluate(self, *args, **kwargs)
        note_state_of_all(self)
        return found

    return evaluate_on_ranks


def _predicted(predict: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(predict)

    @functools.wraps(predict)
    def predict_on_ranks(self: Model, *args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(self, *args, **kwargs)
        given.apply_defaults()
        wanted = given.arguments
        if not passes.is_of_all_ranks(self, wanted["x"]):
            return predict(self, *args, **kwargs)
        with passes.alone():
            if not _is_worth_it(self, wanted):
                return predict(self, *args, **kwargs)
            try:
                part = part_of(
                    (wanted["x"], None, None),
                    wanted["batch_size"],
                    wanted["steps"],
                    global_process_set,
                )
            except ValueError:
                # Other data on each rank, or without an end.
                return predict(self, *args, **kwargs)
            return inference.predict_part(
                self, part, global_process_set, verbose=wanted["verbose"]
            )

    return predict_on_ranks


def _is_worth_it(model: Model, wanted: dict[str, Any]) -> bool:
    """Whether there are batches for all ranks, and none is asked for alone."""
    if wanted["callbacks"] or states.stateful_layer(model):
        return False
    x = wanted["x"]
    if isinstance(x, tf.data.Dataset):
        count = int(x.cardinality())
    elif isinstance(x, compat.Dataset):
        count = compat.num_batches(x) or 0
    else:
        leaves = tf.nest.flatten(x)
        if not leaves or not all(getattr(each, "shape", ()) for each in leaves):
            return False
        count = -(-len(leaves[0]) // (wanted["batch_size"] or _BATCH_SIZE))
    return count >= topology.size()
