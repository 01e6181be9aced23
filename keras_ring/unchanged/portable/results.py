"""Metrics, evaluations and predictions of all ranks, as of one process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_ring._typing import Logs, Model, Variable
from keras_ring.core import arrays
from keras_ring.core.objects import broadcast_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.backends import backend
from keras_ring.keras.inference import inference
from keras_ring.keras.lanes import compat, events, hooks, keras, keras3_models
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.model import metric_state
from keras_ring.unchanged import (
    batch_watchers,
    data_passes,
    shared_counts,
    stateful_layers,
)
from keras_ring.unchanged.portable import all_rows

_PURPOSE = "the results are those of one process"
_BATCH_SIZE = 32  # Keras' default


def install() -> None:
    """Changes the models of Keras. Calling it once is enough."""
    shared_counts.install()
    hooks.subscribe(
        events.RESULTS_MADE,
        _of_all_ranks,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.EVALUATED, _evaluated, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.PREDICTED, _predicted, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )


def _of_all_ranks(results: Callable[..., Logs]) -> Callable[..., Logs]:
    @functools.wraps(results)
    def results_of_all_ranks(self: Model, logs: Logs) -> Logs:
        running = data_passes.current()
        if running is None or running.model is not self:
            return results(self, logs)
        digests: Any = running.digests
        digests.require_same("auto/fit/epoch")
        return combined(self, "auto/fit")

    return results_of_all_ranks


def combined(model: Model, name: str) -> Logs:
    """Returns the results of all ranks, and leaves metrics in that state.

    Args:
        model: A `keras.Model`.
        name: String, the prefix of the names of the collectives.
    """
    own, whole = all_rows.variables_of_ranks(model)
    shared_counts.leave_to_one(own)
    metric_state.combine(own, global_process_set, f"{name}/metrics")
    for index, variable in enumerate(whole):
        _share(variable, f"{name}/metrics/whole/{index}")
    return _numbers(model.get_metrics_result())


def _numbers(found: Logs) -> Logs:
    """Returns results of metrics as numbers, or as arrays of several."""

    def number(value: Any) -> Any:
        array = np.asarray(keras.ops.convert_to_numpy(value))
        return array if array.shape else array.item()

    return {key: number(value) for key, value in found.items()}


def _share(variable: Variable, name: str) -> None:
    value = arrays.broadcast(
        compat.as_numpy(variable), 0, name=name, process_set=global_process_set
    )
    compat.assign(variable, value)


def _evaluated(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(evaluate)

    @functools.wraps(evaluate)
    def evaluate_on_ranks(self: Model, *args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(self, *args, **kwargs)
        given.apply_defaults()
        wanted = given.arguments
        if not data_passes.is_of_all_ranks(self, wanted["x"]):
            return evaluate(self, *args, **kwargs)
        with data_passes.alone():
            if _can_divide_evaluation(self, wanted):
                found = _divided(self, wanted)
                shared_counts.note_state_of_all(self)
                return found
            found = evaluate(self, *args, **kwargs)
        shared_counts.note_state_of_all(self)
        # The same on all ranks, also on hosts that round in another way.
        return broadcast_object(found, name="auto/evaluate")

    return evaluate_on_ranks


def _divided(model: Model, wanted: dict[str, Any]) -> Any:
    """Evaluates a part of the data, and returns the results of all."""
    given = {key: wanted[key] for key in _ARGUMENTS}
    callbacks = wanted["callbacks"]
    if callbacks is None:
        return inference.evaluate(model, verbose=wanted["verbose"], **given)
    # Those of `fit`, which may have other weights evaluated.
    callbacks.on_test_begin()
    found = inference.evaluate(model, verbose=0, **given)
    callbacks.on_test_end(found)
    return found


_ARGUMENTS = (
    *("x", "y", "sample_weight"),
    *("batch_size", "steps", "return_dict"),
)


def _predicted(predict: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(predict)

    @functools.wraps(predict)
    def predict_on_ranks(self: Model, *args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(self, *args, **kwargs)
        given.apply_defaults()
        wanted = given.arguments
        if not data_passes.is_of_all_ranks(self, wanted["x"]):
            return predict(self, *args, **kwargs)
        with data_passes.alone():
            if wanted["callbacks"] or not _can_divide(self, wanted):
                return predict(self, *args, **kwargs)
            return inference.predict(
                self,
                wanted["x"],
                wanted["batch_size"],
                wanted["verbose"],
                wanted["steps"],
            )

    return predict_on_ranks


def _can_divide_evaluation(model: Model, wanted: dict[str, Any]) -> bool:
    return (
        _can_divide(model, wanted)
        and metric_state.are_sums(model)
        and not keras3_models.is_own_test_step(model)
        and _are_silent(wanted["callbacks"])
    )


def _are_silent(callbacks: Any) -> bool:
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    if callbacks is not None and not is_list:
        return False
    return not batch_watchers.look_at_tests(callbacks)


def _can_divide(model: Model, wanted: dict[str, Any]) -> bool:
    """Returns whether ranks can have batches of their own: of arrays, enough.

    Args:
        model: A `keras.Model`.
        wanted: Dictionary of arguments by name.
    """
    given = (wanted["x"], wanted.get("y"), wanted.get("sample_weight"))
    leaves = [leaf for leaf in backend.flatten(given) if leaf is not None]
    if not leaves or not all(isinstance(each, np.ndarray) for each in leaves):
        return False
    if stateful_layers.stateful_layer(model):
        return False
    size = wanted["batch_size"] or _BATCH_SIZE
    count = -(-len(leaves[0]) // size)
    return count >= global_process_set.size()
