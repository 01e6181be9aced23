"""Metrics and predictions of all ranks, equal to those of one process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_ring._typing import Logs, Model, Variable
from keras_ring.core import arrays, reduce_ops, topology
from keras_ring.core.objects import broadcast_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.backends import backend, tf_data
from keras_ring.keras.inference import inference
from keras_ring.keras.inference.parts import part_of
from keras_ring.keras.lanes import compat, events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.model import metric_state
from keras_ring.tensorflow import gathers
from keras_ring.unchanged import (
    batch_watchers,
    counted,
    data_passes,
    returned,
    shared_counts,
    stateful_layers,
    whole_functions,
)
from keras_ring.unchanged.data_passes import Pass

_PURPOSE = "the results are those of one process"
_BATCH_SIZE = 32  # Keras' default


def install() -> None:
    """Changes the models, means and sums of Keras. Once is enough."""
    hooks.subscribe(
        events.RESULTS_MADE,
        _of_all_ranks,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.EVALUATED,
        _evaluated,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    shared_counts.install()
    hooks.subscribe(
        events.PREDICTED,
        _predicted,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.MEAN_UPDATED,
        counted.of_share,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )


def _of_all_ranks(results: Callable[..., Logs]) -> Callable[..., Logs]:
    @functools.wraps(results)
    def results_of_all_ranks(self: Model, logs: Logs) -> Logs:
        running = data_passes.current()
        if running is None or running.model is not self:
            return results(self, logs)
        name = "auto/fit" if running.is_training else "auto/evaluate"
        if running.digests is not None:
            running.digests.require_same(f"{name}/data")
        if not running.is_split:
            # All ranks use the results of one.
            own = backend.map_structure(float, dict(results(self, logs)))
            shared: Logs = broadcast_object(own, name=f"{name}/results")
            return shared
        return combined(self, logs, name, at_end=True)

    return results_of_all_ranks


def combined(model: Model, logs: Logs, name: str, *, at_end: bool) -> Logs:
    """Returns the results of all ranks, and leaves metrics in that state.

    Args:
        model: A `keras.Model`.
        logs: The logs that the last step has returned.
        name: String, the prefix of the names of the collectives.
        at_end: Boolean, whether a pass over the data has ended. Keras then
            takes the results of metrics if the step has returned values of
            just the same names.
    """
    running = data_passes.current()
    of_rank: Logs = backend.map_structure(
        np.asarray, dict(model.get_metrics_result())
    )
    wholes: list[Variable] = []
    parts = compat.metrics_variables(model)
    if running is not None and running.is_training:
        parts, wholes = whole_functions.variables_of_ranks(model)
    shared_counts.leave_to_one(parts)
    metric_state.combine(parts, global_process_set, f"{name}/metrics")
    _share_of_rank_0(wholes, f"{name}/metrics/whole")
    of_all: Logs = model.get_metrics_result()
    if not isinstance(logs, dict):
        return of_all
    found = of_all
    if set(logs) != set(of_all) or (not at_end and returned.are_own(model)):
        values = returned.of(model)
        found = values.combined(logs, of_rank, of_all, name)
    # NumPy scalars, as Keras shows them.
    numbers: Logs = backend.map_structure(
        lambda each: np.asarray(each)[()], found
    )
    return numbers


def _share_of_rank_0(variables: list[Variable], name: str) -> None:
    """Sets variables to the values of rank 0, so that they are bitwise equal.

    These are counts of all rows, which ranks have computed by themselves.
    """
    if not variables:
        return
    values = gathers.broadcast_group(
        [backend.as_tensor(each) for each in variables], 0, name
    )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _evaluated(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(evaluate)

    @functools.wraps(evaluate)
    def evaluate_on_ranks(self: Model, *args: Any, **kwargs: Any) -> Any:
        wanted = parameters.bind(self, *args, **kwargs).arguments
        if not data_passes.is_of_all_ranks(self, wanted.get("x")):
            return evaluate(self, *args, **kwargs)
        with data_passes.running(Pass(self, is_training=False)) as running:
            running.is_watched = are_watched(wanted.get("callbacks"))
            found = evaluate(self, *args, **kwargs)
        shared_counts.note_state_of_all(self)
        return found

    return evaluate_on_ranks


def are_watched(callbacks: Any) -> bool:
    """Returns whether a callback of any rank observes evaluated batches.

    All ranks must call this.

    Args:
        callbacks: The callbacks that `fit` or `evaluate` is given.
    """
    watches = arrays.allreduce(
        np.array([batch_watchers.look_at_tests(callbacks)], np.uint8),
        reduce_ops.Max,
        name="auto/evaluate/watched",
        process_set=global_process_set,
    )
    return bool(watches[0])


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
                # The data differ between ranks, or are infinite.
                return predict(self, *args, **kwargs)
            return inference.predict_part(
                self, part, global_process_set, verbose=wanted["verbose"]
            )

    return predict_on_ranks


def _is_worth_it(model: Model, wanted: dict[str, Any]) -> bool:
    """Returns whether a prediction can be split, with a batch for each rank.

    It is not if there are callbacks or stateful layers.

    Args:
        model: A `keras.Model`.
        wanted: Dictionary of the arguments of `predict` by name.
    """
    if wanted["callbacks"] or stateful_layers.stateful_layer(model):
        return False
    x = wanted["x"]
    if tf_data.is_dataset(x):
        count = int(x.cardinality())
    elif isinstance(x, compat.Dataset):
        count = compat.num_batches(x) or 0
    else:
        leaves = backend.flatten(x)
        if not leaves or not all(getattr(each, "shape", ()) for each in leaves):
            return False
        count = -(-len(leaves[0]) // (wanted["batch_size"] or _BATCH_SIZE))
    return count >= topology.size()
