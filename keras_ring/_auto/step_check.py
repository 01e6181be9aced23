"""Finds out whether training on parts of a batch is training on the batch.

It is, of what Keras itself computes: losses that are means over the rows,
layers that look at each row alone. Of a step, loss or layer of the program's
own nobody knows: a loss may be a sum, or compare each row with all others. So,
once for each model, all ranks put the parts of the first batch together and
compare the gradients of the whole with what the parts give.

Both are computed eagerly, on the weights after the first step, with numbers in
place of random ones that each row has of its own, or else constants, and
without a trace in the state of the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring._agreement.next_batch import (
    TrainFunction,
    iterator_of,
    next_of,
    on_next_call,
)
from keras_ring._auto import apart, passes, same_data
from keras_ring._auto.said import say
from keras_ring._keras import compat
from keras_ring._keras.steps import steps
from keras_ring._ops.names import variable_path
from keras_ring._runtime.process_sets import global_process_set
from keras_ring._training import whole_batch
from keras_ring._training.whole_batch import PartStep, Step, WholeStep
from keras_ring._typing import Model, Structure
from keras_ring.errors import AutoError

_CHECKED = "_keras_ring_step_checked"
_NAME = "auto/step_check/apart"


def arrange(model: Model) -> None:
    """Has the step of a model checked after its first batch, if need be.

    Args:
        model: A `keras.Model` in `fit`, whose ranks have parts of a batch.
    """
    if not _is_due(model):
        return

    def train_and_check(
        train: TrainFunction, iterator: Iterator[Structure]
    ) -> Any:
        if not isinstance(iterator, tf.data.Iterator):
            return train(iterator)
        batches = next_of(iterator, compat.steps_per_execution(model))
        if not batches:
            return train(iterator)
        logs = train(iterator_of(batches, iterator))
        _check(model, batches[0])
        return logs

    on_next_call(model, train_and_check)


def check_once(model: Model, batch: Structure) -> None:
    """Checks the step of a model on a batch, if it was not, and need be.

    Args:
        model: A `keras.Model`, which was trained on the batch.
        batch: The whole batch.
    """
    if _is_due(model):
        _check(model, batch)


def _is_due(model: Model) -> bool:
    """Whether the step is to be checked; not again afterwards."""
    if vars(model).get(_CHECKED) or not _is_of_unknown(model):
        return False
    # Past the model's own `__setattr__`, which tracks what is set.
    object.__setattr__(model, _CHECKED, True)
    return True


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
    weights = apart.unequal_weights(int(whole_batch.num_rows(batch)))
    num_bytes = min(
        tf.as_dtype(layer.compute_dtype or tf.float64).size
        for layer in model._flatten_layers()
    )

    def updates(step: Step, by_rows: bool) -> apart.Updates:
        return _updates(model, batch, step, by_rows)

    with _left_as_it_is(model), passes.running(None):
        # Numbers for each row are those of the whole only in the order of its
        # rows; and constants may be where a function has no derivative.
        for by_rows in (True, False):
            try:
                of_whole = updates(WholeStep(everyone, []), by_rows)
                step = PartStep(batch, everyone, [], weights)
                of_parts = updates(step, by_rows)
            except AutoError:
                raise
            except Exception as error:
                say(
                    f"{what} is not checked, for it does not run eagerly "
                    f"({type(error).__name__}: {error})"
                )
                return
            of_parts = apart.averaged(of_parts, "auto/step_check/gradients")
            found = apart.difference(of_whole, of_parts, _NAME, num_bytes)
            if found is None:
                say(
                    f"{what} is the program's own; on parts of a batch it "
                    "gives the gradients of the whole (checked on the first "
                    "batch)"
                )
                return
        of_whole_again = updates(WholeStep(everyone, []), by_rows)
        again = apart.difference(of_whole, of_whole_again, _NAME, num_bytes)
    if again is not None:
        say(
            f"WARNING: {what} is not checked, for it draws random numbers "
            "that are not TensorFlow's. Its loss is taken to be a mean over "
            "the rows of a batch"
        )
        return
    raise AutoError(
        f"The step of model {model.name!r} is the program's own, and on parts "
        f"of a batch it does not give the gradients of the whole: {found}. "
        "Its loss may be a sum over the rows and no mean, or compare rows with "
        "each other, or be divided by what is not their number; or the step "
        "clips its gradients, which the optimizer is to do "
        "(`global_clipnorm`). Make it a mean over rows (`tf.reduce_mean`), or "
        "take a loss of `keras.losses`; or train by explicit lines, where the "
        "program says what is averaged: "
        "`kr.data.shard`, `kr.DistributedOptimizer`."
    )


def _updates(
    model: Model, batch: Structure, step: Step, by_rows: bool
) -> apart.Updates:
    """Returns the gradients of a step by the paths of their variables.

    Args:
        model: A `keras.Model`.
        batch: The whole batch.
        step: A `Step`, which captures them.
        by_rows: Boolean, whether numbers in place of random ones are other ones
            for each row.
    """
    place = step.place() if by_rows else None
    with steps.without_chance(place), whole_batch.step(step):
        model.train_step(step.rows_of(batch))
    return [
        (str(variable_path(variable)), tf.convert_to_tensor(gradient))
        for variable, gradient in step.captured or ()
        if gradient is not None
    ]


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
