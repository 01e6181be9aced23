"""Runs of a model's step on a whole batch and on parts of it.

They are eager, apply no updates, and leave the state of the model unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_ring._typing import Logs, Model, Structure
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.model.model_broadcast import broadcast_model
from keras_ring.keras.optimizer import whole_batch
from keras_ring.keras.optimizer.local_updates import allow_local_updates
from keras_ring.keras.optimizer.whole_batch import PartStep, Step, WholeStep
from keras_ring.tensorflow import batch_rows, tensors
from keras_ring.unchanged import (
    counted,
    data_passes,
    gradient_difference,
    kept_state,
    whole_functions,
)
from keras_ring.unchanged.counted import Count, Counter
from keras_ring.unchanged.recorded_state import Recorder

NAME = "auto/step_check"


def build_and_share(model: Model, batch: Structure) -> None:
    """Builds a model, and gives all ranks the state of rank 0.

    Args:
        model: A `keras.Model`.
        batch: A batch that it is to be trained on.
    """
    if not compat.is_built(model):
        # The trace that builds the model applies no updates.
        with data_passes.running(None), allow_local_updates():
            compat.build_from_batch(model, batch)
    broadcast_model(model)


class Ran(NamedTuple):
    """The effects of one run of a step.

    Args:
        updates: The gradients, with the paths of their variables.
        logs: Dictionary of the values that it has returned.
        results: Dictionary of the results of metrics after it.
        state: The `Recorder` of its assignments.
        counts: List of the `Count`s in metrics.
    """

    updates: gradient_difference.Updates
    logs: Logs
    results: Logs
    state: Recorder
    counts: list[Count]


def run(
    model: Model,
    batch: Structure,
    step: Step,
    by_rows: bool,
    whole: Recorder | None = None,
    begin: Recorder | None = None,
) -> Ran:
    """Runs a step that applies no updates, and restores the model.

    Args:
        model: A `keras.Model`.
        batch: The whole batch.
        step: A `Step`, which captures the gradients.
        by_rows: Boolean, whether the numbers in place of random ones differ
            between rows. Otherwise they are constants.
        whole: The `Recorder` of the run on the whole batch, whose values are
            assigned in place of those of the step. Defaults to `None`.
        begin: The `Recorder` of an earlier run, with whose last values this
            run begins. Defaults to `None`, for the present values.
    """
    rows = step.row_range() if by_rows else None
    state = Recorder(model, whole, begin)
    with state.running():
        counter = Counter(model)
        with steps.without_chance(rows), whole_batch.step(step):
            with whole_functions.metrics_of_all(model):
                logs = model.train_step(step.rows_of(batch))
        updates = [
            (str(backend.variable_path(variable)), backend.as_tensor(gradient))
            for variable, gradient in step.captured or ()
            if gradient is not None
        ]
        is_named = isinstance(logs, dict)
        # Copied, because the values of variables change later.
        logs = backend.map_structure(
            lambda each: (
                np.asarray(compat.as_numpy(each))
                if hasattr(each, "assign")
                else each
            ),
            dict(logs) if is_named else {},
        )
        results = dict(model.get_metrics_result()) if is_named else {}
        results = backend.map_structure(np.asarray, results)
        counts = counter.counts()
    return Ran(updates, logs, results, state, counts)


class Comparison:
    """A comparison of steps on one batch and on parts of it.

    Args:
        model: A `keras.Model`.
        batch: The whole batch, with at least one row for each rank.
        number: Integer, the number of the batch.
    """

    def __init__(self, model: Model, batch: Structure, number: int) -> None:
        self.model = model
        self.batch = batch
        self.rows = int(batch_rows.num_rows(batch))
        self.number = number
        # The bytes of the smallest floating-point type of the computation.
        # Layers of text and of indices compute in other types.
        sizes = [
            tensors.num_bytes_of_floating(layer.compute_dtype or "float64")
            for layer in model._flatten_layers()
        ]
        self.num_bytes = min(filter(None, sizes), default=8)
        self.own_rows = int(self._part().row_range().count)

    def on_whole(self, by_rows: bool, begin: Recorder | None = None) -> Ran:
        """Runs the step on all rows, see `run`."""
        whole = WholeStep(global_process_set, [])
        return run(self.model, self.batch, whole, by_rows, begin=begin)

    def on_part(
        self, by_rows: bool, whole: Recorder, begin: Recorder | None = None
    ) -> Ran:
        """Runs the step on this rank's rows, with the state of the whole."""
        step = self._part()
        return run(self.model, self.batch, step, by_rows, whole, begin)

    def _part(self) -> PartStep:
        weights = gradient_difference.unequal_weights(self.rows)
        return PartStep(self.batch, global_process_set, [], weights)

    def narrow(self, whole: Ran, part: Ran) -> str | None:
        """Narrows the ways of state, and returns the error or `None`."""
        return kept_state.of(self.model).narrow(
            whole.state,
            part.state,
            self.own_rows / self.rows,
            self.num_bytes,
            self.number,
        )

    def problem_of_metrics(
        self, whole: Ran, part: Ran, *, is_first: bool
    ) -> str | None:
        """Returns the error for a metric that does not add up, or `None`."""
        return counted.problem_of(
            self.model,
            whole.counts,
            part.counts,
            (self.rows, self.own_rows),
            self.num_bytes,
            self.number,
            is_first=is_first,
        )

    def repeats(self, whole: Ran, by_rows: bool) -> bool:
        """Returns whether the step on the whole batch does the same again."""
        again = self.on_whole(by_rows)
        found = gradient_difference.difference(
            whole.updates, again.updates, f"{NAME}/apart", self.num_bytes
        )
        return found is None and kept_state.is_repeated(
            whole.state, again.state
        )

    def difference(self, whole: Ran, part: Ran) -> str | None:
        """Describes how gradients of parts differ from those of the whole.

        Returns:
            String, or `None` on all ranks if there is no difference.
        """
        of_parts = gradient_difference.averaged(
            part.updates, f"{NAME}/gradients"
        )
        return gradient_difference.difference(
            whole.updates, of_parts, f"{NAME}/apart", self.num_bytes
        )
