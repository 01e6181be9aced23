"""Lets processes that join an elastic job into a `fit` that runs.

Ranks that train stay in their `fit`. At the end of a batch they ask each other
now and then whether anyone waits, let in who does, and give it what they have:
model and optimizer, their places in the data, the number of the epoch and of
the batch, and what callbacks decide by.

Who comes in calls the same `fit`. It trains one step alone first, which traces
it, and calls `fit` with the epoch of the others once they have let it in. Until
its first batch begins, it does what the others have done long ago, and
exchanges nothing. What its callbacks set meanwhile, such as a learning rate, is
undone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_ring._typing import Callback, Model, Variable
from keras_ring.core import arrays, generations, topology
from keras_ring.core.objects import broadcast_object
from keras_ring.core.reduce_ops import Max
from keras_ring.keras import scope
from keras_ring.keras.agreement.time_budget import Budget
from keras_ring.keras.backends import backend
from keras_ring.keras.elastic import admission, positions
from keras_ring.keras.elastic.places import places
from keras_ring.keras.lanes import (
    callback_state,
    compat,
    events,
    hooks,
)
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.model.model_broadcast import broadcast_model
from keras_ring.keras.model.model_optimizers import optimizers_of
from keras_ring.keras.optimizer import local_updates
from keras_ring.keras.optimizer.mixin import distributed_settings

_PURPOSE = "processes that join the job come into it"
# Of the time of a training, for asking whether anyone waits.
_SHARE = 0.002


@dataclasses.dataclass(frozen=True)
class _Given:
    """The state that those that come in are given, beside variables.

    Attributes:
        epoch: Integer, the number of the epoch that runs.
        batches: Integer, the number of its batches that are over.
        folds_rank: Boolean, whether ranks draw random numbers of their own.
        callbacks: What callbacks remember.
    """

    epoch: int
    batches: int
    folds_rank: bool
    callbacks: callback_state.State


class JoinedFit:
    """A `fit` that others may come into, on this rank.

    Args:
        model: The `keras.Model` that is trained.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        # The list of callbacks of this `fit`, once it has begun.
        self.callbacks: Any = None
        self._epoch = 0
        self._batches = 0
        # The number of batches of the present epoch before this rank came in.
        self._missed = 0
        self._budget = Budget(0.0, _SHARE)
        # What is to be done before the first batch, on a rank that came in.
        self._before_batch: Callable[[], None] | None = None

    def come_in(self) -> int:
        """Joins the others in their `fit`; returns the number of its epoch."""
        admission.come_in()
        given = admission.share(lambda: self._share(None), has_come_in=True)
        self._missed = given.batches
        values = [
            (each, np.array(compat.as_numpy(each)))
            for each in _variables(self._model)
        ]
        catches_up = contextlib.ExitStack()
        catches_up.enter_context(scope.inside(catches_up=True))

        def begin() -> None:
            catches_up.close()
            for variable, value in values:
                compat.assign(variable, value)
            callback_state.give(self.callbacks.callbacks, given.callbacks)

        self._before_batch = begin
        return given.epoch

    def epoch_begins(self, epoch: int) -> None:
        """Takes note of an epoch that begins."""
        self._epoch = epoch
        self._batches = 0
        if self._before_batch is None:
            self._missed = 0

    def number_of(self, batch: int) -> int:
        """Returns the number that a batch has on the other ranks."""
        return self._missed + batch

    def batch_begins(self) -> None:
        """Goes on with the others from here, if this rank has come in."""
        begin, self._before_batch = self._before_batch, None
        if begin is not None:
            begin()

    def batch_ends(self, batch: int) -> None:
        """Lets in those that wait, if it is time to ask for them.

        Args:
            batch: Integer, the number that it has on all ranks.
        """
        self._batches = batch + 1
        if not self._budget.is_due():
            return
        with self._budget.checking():
            known = [generations.num_waiting(), self._budget.wish()]
            num_waiting, periods = map(
                int,
                arrays.allreduce(
                    np.array(known, np.int64), Max, name="elastic/fit_waiting"
                ),
            )
        if num_waiting and positions.are_at_end():
            # Those that come in would begin with another epoch.
            num_waiting, periods = 0, 1
        self._budget.agreed(periods)
        if not num_waiting:
            return
        given = _Given(
            epoch=self._epoch,
            batches=self._batches,
            folds_rank=_folds_rank(self.callbacks.callbacks),
            callbacks=callback_state.state_of(self.callbacks.callbacks),
        )
        admission.let_in()
        admission.share(lambda: self._share(given), has_come_in=False)

    def _share(self, given: _Given | None) -> _Given:
        shared = broadcast_object(given, 0, name="elastic/fit")
        if not isinstance(shared, _Given):
            raise TypeError(
                "Rank 0 has come in itself, and has nothing to give. "
                f"Received: {shared!r}"
            )
        broadcast_model(self._model, 0, fold_rank=shared.folds_rank)
        return shared


def install() -> None:
    """Changes the classes of Keras. Calling it once is enough."""
    hooks.subscribe(events.FIT_RUNS, _joined, ring=Ring.JOIN, purpose=_PURPOSE)
    for point in hooks.points(events.CALLBACKS_TOLD):
        if point.name in _TOLD:
            hooks.subscribe(
                events.CALLBACKS_TOLD,
                _TOLD[point.name],
                ring=Ring.JOB,
                purpose=_PURPOSE,
                at=point,
            )


def _joined(fit: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(fit)

    @functools.wraps(fit)
    def fit_joined(self: Model, *args: Any, **kwargs: Any) -> Any:
        call = parameters.bind(self, *args, **kwargs)
        call.apply_defaults()
        if not (_may_be_joined(call) and places.take_fit()):
            return fit(self, *args, **kwargs)
        joined = JoinedFit(self)
        if not generations.is_waiting():
            with scope.inside(joined_fit=joined):
                return fit(self, *args, **kwargs)
        _train_a_step(fit, call)
        call.arguments["initial_epoch"] = joined.come_in()
        with scope.inside(joined_fit=joined, goes_on=True):
            return fit(*call.args, **call.kwargs)

    return fit_joined


def _may_be_joined(call: inspect.BoundArguments) -> bool:
    """Returns whether others could come into this call of `fit`."""
    if not topology.is_initialized() or not topology.is_elastic():
        return False
    arguments = call.arguments
    settings = [
        found
        for each in optimizers_of(arguments["self"]).values()
        if (found := distributed_settings(each)) is not None
    ]
    return (
        bool(settings)
        and all(each.elastic for each in settings)
        and positions.are_of(arguments["x"])
        and arguments["steps_per_epoch"] is None
        and not any(map(_undoes_steps, _callbacks(arguments["callbacks"])))
        # A callback may call `fit` as well.
        and scope.current().watch is None
        and not local_updates.are_allowed()
    )


def _callbacks(given: Any) -> list[Callback]:
    # A list of Keras, which has such a list, a list, or one.
    given = getattr(given, "callbacks", given)
    return list(backend.flatten(given)) if given is not None else []


def _undoes_steps(callback: Callback) -> bool:
    return "BackupAndRestore" in {
        each.__name__ for each in type(callback).mro()
    }


def _folds_rank(callbacks: list[Callback]) -> bool:
    return all(getattr(each, "fold_rank", True) for each in callbacks)


def _train_a_step(
    fit: Callable[..., Any], call: inspect.BoundArguments
) -> None:
    """Traces the step of a `fit` while the others train without this rank."""
    model = call.arguments["self"]
    for callback in _callbacks(call.arguments["callbacks"]):
        # It must be the step that the others have traced.
        prepare = getattr(callback, "prepare_step", None)
        if prepare is not None:
            prepare(model)
    alone = dict(
        call.arguments,
        epochs=call.arguments["initial_epoch"] + 1,
        steps_per_epoch=compat.steps_per_execution(model),
        callbacks=None,
        validation_data=None,
        validation_split=0.0,
        verbose=0,
    )
    fit(**alone)


def _variables(model: Model) -> list[Variable]:
    """Returns the variables that ranks share."""
    variables = [*model.variables, *compat.seed_variables(model)]
    for optimizer in optimizers_of(model).values():
        variables += compat.optimizer_variables(optimizer)
    of_metrics = {id(each) for each in compat.metrics_variables(model)}
    by_id = {id(each): each for each in variables if id(each) not in of_metrics}
    return list(by_id.values())


def _of(callbacks: Any) -> JoinedFit | None:
    """Returns the `fit` that a list of callbacks is of, if others may join."""
    joined: JoinedFit | None = scope.current().joined_fit
    if joined is None or joined.callbacks not in (None, callbacks):
        return None
    return joined


def _train_begins(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (joined := _of(self)) is not None:
            joined.callbacks = self
        return method(self, *args, **kwargs)

    return told


def _epoch_begins(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def told(self: Any, epoch: int, *args: Any, **kwargs: Any) -> Any:
        if (joined := _of(self)) is not None:
            joined.epoch_begins(epoch)
        return method(self, epoch, *args, **kwargs)

    return told


def _batch_begins(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def told(self: Any, batch: int, *args: Any, **kwargs: Any) -> Any:
        if (joined := _of(self)) is not None:
            joined.batch_begins()
            batch = joined.number_of(batch)
        return method(self, batch, *args, **kwargs)

    return told


def _batch_ends(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def told(self: Any, batch: int, *args: Any, **kwargs: Any) -> Any:
        joined = _of(self)
        if joined is None:
            return method(self, batch, *args, **kwargs)
        batch = joined.number_of(batch)
        result = method(self, batch, *args, **kwargs)
        joined.batch_ends(batch)
        return result

    return told


_TOLD = {
    "on_train_begin": _train_begins,
    "on_epoch_begin": _epoch_begins,
    "on_train_batch_begin": _batch_begins,
    "on_train_batch_end": _batch_ends,
}
