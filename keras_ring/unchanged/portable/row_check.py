"""Checks that a model computes each row of a batch by itself.

It is known of layers, losses and metrics of Keras. A layer of the program's
own, or a `compute_loss`, may compare rows, count them, or keep something of
them. So, on the first batch of each epoch, the outputs of the model, its loss
and what it keeps without training it are computed on the whole batch and on
this rank's part, with constants in place of random numbers, and compared. The
model is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Logs, Model, Structure, Tensor
from keras_ring.core import arrays
from keras_ring.core.notices import say
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.core.reduce_ops import Sum
from keras_ring.errors import AutoError, KerasRingError
from keras_ring.keras import scope
from keras_ring.keras.agreement.next_batch import on_next_call
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.lanes import constant_random, keras, keras3_models
from keras_ring.keras.model import seeds
from keras_ring.unchanged import data_passes, script, tolerances
from keras_ring.unchanged.portable import parts
from keras_ring.unchanged.portable.parts import Step

_SAID = "_keras_ring_rows_checked"


def arrange(model: Model, then: Callable[[], None]) -> None:
    """Makes the next batch of a model be checked, if that is needed.

    All ranks must call this before a batch of training.

    Args:
        model: A `keras.Model` in `fit`.
        then: Function that is called after the check, which updates metrics,
            and before the batch is trained on.
    """
    if _is_known(model):
        then()
        return

    def check_and_train(train: Run, iterator: Iterator[Structure]) -> Logs:
        batches, iterator = backend.read_ahead(iterator, 1)
        if batches:
            _check(model, batches[0])
        then()
        return train(iterator)

    on_next_call(model, check_and_train)


def _is_known(model: Model) -> bool:
    overrides = type(model).compute_loss is not keras.Model.compute_loss
    return not overrides and keras3_models.has_known_layers(model)


def _check(model: Model, batch: Structure) -> None:
    part = parts.part_of(model, batch)
    whole = problem = None
    try:
        with data_passes.running(None):
            whole = _forward(model, batch, parts.WholeStep())
    except KerasRingError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if whole is None:
        # The step itself will fail as well, or not: that is no reason to stop.
        say(f"model {model.name!r} is not checked, for it raises {problem}")
        return
    try:
        with data_passes.running(None):
            own = _forward(model, part.rows_of(batch), part)
    except KerasRingError:
        raise
    except Exception as error:
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, which runs on a "
            "batch as it is and not on the rows of a rank: "
            f"{type(error).__name__}: {error}. {_ADVICE}"
        ) from error
    found = _difference(part, whole, own)
    of_ranks = allgather_object(found, "auto/row_check")
    found = next((each for each in of_ranks if each is not None), None)
    if found is not None:
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, which has a layer "
            "or a `compute_loss` of the program's own, and on a part of a "
            f"batch it does not compute what it does on the whole: {found}. "
            f"{_ADVICE}"
        )
    if not hasattr(model, _SAID):
        object.__setattr__(model, _SAID, True)
        say(
            f"model {model.name!r} has parts of the program's own; on the rows "
            "of a rank they compute what they do on the whole batch (checked "
            "on the first batch of each epoch)",
            location=script.location(),
        )


_ADVICE = (
    "It may compare rows with each other, sum over them, keep something of "
    "them, or be made for a number of rows: take as many as are given "
    "(`keras.ops.shape(x)[0]`), and means over rows in place of sums; or train "
    "by explicit lines (docs/keras_guide.md)."
)


class _Found(NamedTuple):
    """The results of a forward pass.

    Args:
        outputs: List of arrays, the outputs of the model.
        loss: Float, its loss.
        state: Dictionary of arrays, by path: the variables that it keeps and
            does not train.
    """

    outputs: list[npt.NDArray[Any]]
    loss: float
    state: dict[str, npt.NDArray[Any]]


def _forward(model: Model, batch: Structure, step: Step) -> _Found:
    """Computes outputs and loss of a model, and changes nothing."""
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    kept = [
        (each, backend.value_of(each))
        for each in [*model.variables, *model.metrics_variables]
    ]
    arguments = {"training": True} if model._call_has_training_arg else {}
    with (
        scope.inside(part=step),
        backend.outside_of_traces(),
        constant_random.without_chance(),
        keras.StatelessScope(state_mapping=kept),
    ):
        outputs = model(x, **arguments)
        loss = model._compute_loss(
            x=x, y=y, y_pred=outputs, sample_weight=weight, training=True
        )
        model._clear_losses()
        return _Found(
            [_array(leaf) for leaf in backend.flatten(outputs)],
            float(_array(loss)),
            {
                each.path: _array(each.value)
                for each in model.non_trainable_variables
                if not seeds.is_state(each)
            },
        )


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    return np.array(keras.ops.convert_to_numpy(tensor))


def _difference(part: parts.PartStep, whole: _Found, own: _Found) -> str | None:
    """Returns what is different on this rank, or `None`."""
    sums = arrays.allreduce(
        np.array([part.share * own.loss]),
        Sum,
        name="auto/row_check/loss",
        process_set=global_process_set,
    )
    pairs = zip(whole.outputs, own.outputs, strict=True)
    for index, (of_all, mine) in enumerate(pairs):
        if not of_all.shape or of_all.shape[0] != part.rows:
            return f"output {index} has shape {of_all.shape}"
        rows = np.asarray(part.rows_of(of_all))
        if rows.shape != mine.shape:
            return (
                f"output {index} has shape {mine.shape}, where the rows of the "
                f"whole have {rows.shape}"
            )
        if not tolerances.are_close(rows, mine):
            far = float(np.max(np.abs(rows - mine)))
            return f"output {index} is up to {far:.3g} away"
    num_bytes = min(each.itemsize for each in whole.outputs)
    if not tolerances.are_close(
        np.asarray(whole.loss), sums.reshape(()), num_bytes
    ):
        return f"its loss is {float(sums[0]):.9g} and not {whole.loss:.9g}"
    for path, value in whole.state.items():
        if not tolerances.are_close(value, own.state[path], num_bytes):
            return f"after it variable {path!r} has another value"
    return None
