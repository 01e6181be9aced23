"""Finds out whether training on parts of a batch is training on the batch.

It is, of what Keras itself computes: losses that are means over the rows,
layers that look at each row alone. Of a step or layer of the program's own
nobody knows: a loss may be a sum, or compare each row with all others. So all
ranks put the parts of a batch together and compare the gradients of the whole
with what the parts give: of the first batch, and ever more rarely of later ones
(`occasions`), as what a step does may depend on its data.

Both are computed eagerly, on the weights after the step, with numbers in place
of random ones that each row has of its own, or else constants, and without a
trace in the state of the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_ring._agreement.next_batch import (
    TrainFunction,
    iterator_of,
    next_of,
)
from keras_ring._auto import (
    apart,
    occasions,
    passes,
    returned,
    same_data,
    script,
    whole_functions,
)
from keras_ring._auto.advice import IN_MODEL, REASONS
from keras_ring._auto.passes import Pass
from keras_ring._auto.said import say
from keras_ring._keras import compat
from keras_ring._keras.steps import steps
from keras_ring._ops.names import variable_path
from keras_ring._runtime import topology
from keras_ring._runtime.process_sets import global_process_set
from keras_ring._training import whole_batch
from keras_ring._training.whole_batch import PartStep, Step, WholeStep
from keras_ring._typing import Logs, Model, Structure
from keras_ring.errors import AutoError, KerasRingError

# How many steps there were of a model whose steps are checked.
_COUNTED = "_keras_ring_steps_to_check"
_NAME = "auto/step_check/apart"
# What a step may raise that has other rows than it was made for.
_OF_SHAPES = (
    IndexError,
    TypeError,
    ValueError,
    tf.errors.InvalidArgumentError,
)


class _Checked:
    """Stands in for the training function of a model, and checks its steps.

    Args:
        model: A `keras.Model` in `fit`.
        running: The pass of it.
    """

    def __init__(self, model: Model, running: Pass | None) -> None:
        self._model = model
        self._running = running
        self.train: TrainFunction = model.train_function

    def __call__(self, iterator: Iterator[Structure]) -> Any:
        """Trains as many steps as Keras does at a time."""
        is_own = passes.current() is self._running
        if not is_own or not isinstance(iterator, tf.data.Iterator):
            return self._train(iterator)
        at_once = compat.steps_per_execution(self._model)
        due = [each for each in range(at_once) if _is_due(self._model, each)]
        batches = next_of(iterator, at_once) if due else []
        if not batches:
            _count(self._model, at_once)
            return self._train(iterator)
        batch = batches[min(due[0], len(batches) - 1)]
        with refusing_parts(self._model, batch):
            logs = self._train(iterator_of(batches, iterator))
        _check(self._model, batch)
        _count(self._model, len(batches))
        return logs

    def _train(self, iterator: Iterator[Structure]) -> Any:
        """Trains, and stays where it is if what it calls was for one call."""
        before = self._model.train_function
        logs = self.train(iterator)
        after = self._model.train_function
        if after is not before:
            self.train, self._model.train_function = after, before
        return logs


def arrange(model: Model) -> None:
    """Has the steps of a model checked, if need be, in this `fit`.

    Args:
        model: A `keras.Model` in `fit`, whose ranks have parts of a batch.
    """
    if _is_of_unknown(model):
        model.train_function = _Checked(model, passes.current())


def end(model: Model) -> None:
    """Leaves a model without what `arrange` has put in."""
    train = getattr(model, "train_function", None)
    if isinstance(train, _Checked):
        model.train_function = train.train


def check_single(model: Model, batch: Structure) -> None:
    """Checks the step of a model on a batch, if that is due.

    Args:
        model: A `keras.Model`, which was trained on the batch.
        batch: The whole batch.
    """
    if _is_of_unknown(model):
        if _is_due(model, 0):
            _check(model, batch)
        _count(model, 1)


@contextlib.contextmanager
def refusing_parts(model: Model, batch: Structure) -> Iterator[None]:
    """Has a step that runs on a batch, and not on a part of it, say so.

    Args:
        model: A `keras.Model`, whose step runs inside.
        batch: The whole batch.
    """
    try:
        yield
    except KerasRingError:
        raise
    except _OF_SHAPES as error:
        if not _is_of_unknown(model) or not _runs_on_whole(model, batch):
            raise
        shapes = [
            tuple(leaf.shape)
            for leaf in tf.nest.flatten(batch)
            if hasattr(leaf, "shape")
        ]
        # The first line tells what; the frames of Keras tell nothing.
        lines = str(error).strip().splitlines() or [""]
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, whose step runs on "
            "a batch as it is and not on the rows of a rank: "
            f"{type(error).__name__}: {lines[0][:300]}. The first axis of all "
            "that a batch has is taken for its rows, which are divided "
            f"between ranks; received shapes {shapes}. Make it the axis of "
            "the examples (`np.stack([a, b], axis=1)`), or give what is "
            "stacked as a tuple, `(a, b)`."
        ) from error


def _runs_on_whole(model: Model, batch: Structure) -> bool:
    """Whether the step runs on a whole batch, on this rank alone."""
    with _left_as_it_is(model), passes.running(None):
        try:
            _run(model, batch, WholeStep(global_process_set, []), False)
        except Exception:
            return False
    return True


def _is_due(model: Model, later: int) -> bool:
    """Whether a step is to be checked.

    Args:
        model: A `keras.Model`.
        later: Integer, how many steps there are before it, of the next ones.
    """
    return occasions.is_one(vars(model).get(_COUNTED, 0) + 1 + later)


def _count(model: Model, steps: int) -> None:
    count = vars(model).get(_COUNTED, 0) + steps
    # Past the model's own `__setattr__`, which tracks what is set.
    object.__setattr__(model, _COUNTED, count)


def _is_of_unknown(model: Model) -> bool:
    return not (
        steps.has_known_losses(model)
        and steps.has_known_layers(model)
        and not steps.is_own_train_step(model)
    )


def _check(model: Model, batch: Structure) -> None:
    what = f"the step of model {model.name!r}"
    batch = same_data.of_rank_0(batch)
    everyone = global_process_set
    rows = int(whole_batch.num_rows(batch))
    if rows < topology.size():
        # There is no part for each.
        return
    weights = apart.unequal_weights(rows)
    num_bytes = min(
        tf.as_dtype(layer.compute_dtype or tf.float64).size
        for layer in model._flatten_layers()
    )
    value: str | None = None
    with _left_as_it_is(model), passes.running(None):
        # Numbers for each row are those of the whole only in the order of its
        # rows; and constants may be where a function has no derivative.
        for by_rows in (True, False):
            try:
                whole = _run(model, batch, WholeStep(everyone, []), by_rows)
                step = PartStep(batch, everyone, [], weights)
                part = _run(model, batch, step, by_rows)
            except AutoError:
                raise
            except Exception as error:
                say(
                    f"{what} is not checked, for it does not run eagerly "
                    f"({type(error).__name__}: {error})"
                )
                return
            of_parts = apart.averaged(part.updates, "auto/step_check/gradients")
            found = apart.difference(whole.updates, of_parts, _NAME, num_bytes)
            if found is not None:
                continue
            value = returned.of(model).try_ways(
                (whole.logs, whole.results),
                (part.logs, part.results),
                (rows, int(step.place().count)),
                num_bytes,
            )
            if value is None:
                say(
                    f"{what} is the program's own; on parts of a batch it "
                    "gives the gradients of the whole (checked on batches 1, "
                    "2, 4 and so on)"
                )
                return
        again = _run(model, batch, WholeStep(everyone, []), by_rows)
        apart_again = apart.difference(
            whole.updates, again.updates, _NAME, num_bytes
        )
    if apart_again is not None:
        say(
            f"WARNING: {what} is not checked, for it draws random numbers "
            "that are not TensorFlow's. Its loss is taken to be a mean over "
            "the rows of a batch"
        )
        return
    number = vars(model).get(_COUNTED, 0) + 1
    if value is not None:
        raise AutoError(_text_of_value(model, value, number))
    raise AutoError(
        f"The step of model {model.name!r} is the program's own "
        f"({script.line()}), and on parts of batch {number:,} it does not give "
        f"the gradients of the whole: {found}. {REASONS}{IN_MODEL}"
    )


def _text_of_value(model: Model, key: str, number: int) -> str:
    return (
        f"The step of model {model.name!r} ({script.line()}) returns "
        f"{key!r}, which is neither a mean nor a sum over the rows of a batch "
        "(a root, a maximum, a norm of gradients): of those of the parts of "
        f"batch {number:,} none can make that of the whole, which the history "
        "and callbacks go by. Give a function of `y_true` and `y_pred` to "
        "`compile(metrics=[...])`, where it is computed of all rows; or return "
        "a mean over the rows, and take the root of it in a callback; or leave "
        "it out of what the step returns."
    )


class _Ran(NamedTuple):
    """What a step did.

    Args:
        updates: The gradients by the paths of their variables.
        logs: What it has returned.
        results: The results of metrics after it.
    """

    updates: apart.Updates
    logs: Logs
    results: Logs


def _run(model: Model, batch: Structure, step: Step, by_rows: bool) -> _Ran:
    """Runs a step, which updates nothing but the state of metrics and layers.

    Args:
        model: A `keras.Model`.
        batch: The whole batch.
        step: A `Step`, which captures the gradients.
        by_rows: Boolean, whether numbers in place of random ones are other ones
            for each row.
    """
    place = step.place() if by_rows else None
    with steps.without_chance(place), whole_batch.step(step):
        with whole_functions.metrics_of_all(model):
            logs = model.train_step(step.rows_of(batch))
    updates = [
        (str(variable_path(variable)), tf.convert_to_tensor(gradient))
        for variable, gradient in step.captured or ()
        if gradient is not None
    ]
    is_named = isinstance(logs, dict)
    results = dict(model.get_metrics_result()) if is_named else {}
    return _Ran(
        updates,
        dict(logs) if is_named else {},
        tf.nest.map_structure(np.asarray, results),
    )


@contextlib.contextmanager
def _left_as_it_is(model: Model) -> Iterator[None]:
    """Gives the variables of a model their values back."""
    variables = [
        *model.variables,
        *compat.metrics_variables(model),
        *compat.seed_variables(model),
    ]
    kept = [(each, np.array(compat.as_numpy(each))) for each in variables]
    try:
        yield
    finally:
        for variable, value in kept:
            compat.assign(variable, value)
