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
from keras_ring.keras.callbacks.broadcast import (
    BroadcastGlobalVariablesCallback,
)
from keras_ring.keras.callbacks.learning_rate_schedule import (
    LearningRateScheduleCallback,
)
from keras_ring.keras.elastic import admission, positions
from keras_ring.keras.elastic.places import places
from keras_ring.keras.lanes import (
    callback_state,
    compat,
    events,
    hooks,
    keras,
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
        epochs: Integer, the number at which the `fit` ends.
        batches: Integer, the number of batches of the epoch that are over.
        callbacks: What callbacks remember.
    """

    epoch: int
    epochs: int
    batches: int
    callbacks: callback_state.State


class JoinedFit:
    """A `fit` that others may come into, on this rank.

    Args:
        call: The arguments of the call.

    Attributes:
        is_refused: Boolean, whether this rank does not come into such a `fit`,
            or lets others in. The ranks may have different callbacks, and
            agree.
        callbacks: The list of callbacks of this `fit`, once it has begun.
    """

    def __init__(self, call: inspect.BoundArguments) -> None:
        self._model: Model = call.arguments["self"]
        self._arguments = call.arguments
        self.is_refused = _is_refused(call)
        self.callbacks: Any = None
        self._epoch = 0
        self._batches = 0
        # The number of batches of the present epoch before this rank came in.
        self._missed = 0
        self._budget = Budget(0.0, _SHARE)
        # What is to be done before the first batch, on a rank that came in.
        self._before_batch: Callable[[], None] | None = None

    def come_in(self) -> contextlib.ExitStack:
        """Joins the others in their `fit`, and changes the arguments to theirs.

        Returns:
            A context in which `fit` is to be called.
        """
        admission.come_in(self._model.variables)
        given = admission.share(lambda: self._share(None), has_come_in=True)
        self._missed = given.batches
        self._arguments["initial_epoch"] = given.epoch
        self._arguments["epochs"] = given.epochs
        callbacks = self._arguments["callbacks"]
        if isinstance(callbacks, keras.callbacks.CallbackList):
            # It was made for a job of one rank.
            callbacks.set_model(self._model)
        values = [
            (each, np.array(compat.as_numpy(each))) for each in self._shared()
        ]
        catches_up = contextlib.ExitStack()
        catches_up.enter_context(scope.inside(catches_up=True))

        def begin() -> None:
            catches_up.close()
            for variable, value in values:
                compat.assign(variable, value)
            callback_state.give(self.callbacks.callbacks, given.callbacks)

        self._before_batch = begin
        return catches_up

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
            refused = int(self.is_refused or self._model.stop_training)
            known = [generations.num_waiting(), refused, self._budget.wish()]
            num_waiting, refused, periods = map(
                int,
                arrays.allreduce(
                    np.array(known, np.int64), Max, name="elastic/fit_waiting"
                ),
            )
        if num_waiting and not positions.are_left_for(
            num_waiting, self._arguments["x"]
        ):
            # Those that come in would begin with another epoch.
            num_waiting, periods = 0, 1
        self._budget.agreed(periods)
        if num_waiting and not refused:
            callback_state.settle(self.callbacks)
            given = _Given(
                epoch=self._epoch,
                epochs=self._arguments["epochs"],
                batches=self._batches,
                callbacks=callback_state.state_of(self.callbacks.callbacks),
            )
            admission.let_in(self._model.variables)
            admission.share(lambda: self._share(given), has_come_in=False)

    def _share(self, given: _Given | None) -> _Given:
        shared = broadcast_object(given, 0, name="elastic/fit")
        if not isinstance(shared, _Given):
            raise admission.nobody_left()
        sharing = self._sharing()
        broadcast_model(
            self._model,
            0,
            optimizers=sharing.optimizers if sharing else (),
            fold_rank=sharing.fold_rank if sharing else True,
            local_variables=sharing.local_variables if sharing else (),
        )
        return shared

    def _sharing(self) -> BroadcastGlobalVariablesCallback | None:
        """Returns the callback that says what ranks share, if there is one."""
        for each in _callbacks(self._arguments["callbacks"]):
            if isinstance(each, BroadcastGlobalVariablesCallback):
                return each
        return None

    def _shared(self) -> list[Variable]:
        """Returns the variables that ranks share."""
        model, sharing = self._model, self._sharing()
        variables = [*model.variables, *compat.seed_variables(model)]
        more = sharing.optimizers if sharing else ()
        for optimizer in optimizers_of(model, more).values():
            variables += compat.optimizer_variables(optimizer)
        kept = {id(each) for each in compat.metrics_variables(model)}
        if sharing:
            kept |= {id(each) for each in sharing.local_variables}
        by_id = {id(each): each for each in variables if id(each) not in kept}
        return list(by_id.values())


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
        if not (_is_of_place(call) and places.take_fit()):
            return fit(self, *args, **kwargs)
        joined = JoinedFit(call)
        if not generations.is_waiting() or joined.is_refused:
            with scope.inside(joined_fit=joined):
                return fit(self, *args, **kwargs)
        _train_a_step(fit, call)
        with (
            joined.come_in(),
            scope.inside(joined_fit=joined, goes_on=True),
        ):
            return fit(*call.args, **call.kwargs)

    return fit_joined


def _is_of_place(call: inspect.BoundArguments) -> bool:
    """Returns whether a call of `fit` is one of those that may be the place.

    All ranks must know the same.

    Raises:
        ValueError: If the data are dealt, and Keras would read them ahead.
    """
    if not topology.is_initialized() or not topology.is_elastic():
        return False
    arguments = call.arguments
    if not positions.are_of(arguments["x"]):
        return False
    if arguments["class_weight"] is not None:
        raise ValueError(
            "With `class_weight`, Keras reads batches ahead of their steps, so "
            "an elastic job would not know which ones were trained on. Give "
            "`kr.data.batches` the weights of the samples as the third array: "
            "`kr.data.batches((x, y, weights), ...)`. "
            f"Received: class_weight={arguments['class_weight']!r}"
        )
    settings = [
        found
        for each in optimizers_of(arguments["self"]).values()
        if (found := distributed_settings(each)) is not None
    ]
    return (
        bool(settings)
        and all(each.elastic for each in settings)
        # A callback may call `fit` as well.
        and scope.current().watch is None
        and not local_updates.are_allowed()
    )


def _is_refused(call: inspect.BoundArguments) -> bool:
    """Returns whether others cannot come into such a `fit`."""
    callbacks = _callbacks(call.arguments["callbacks"])
    return call.arguments["steps_per_epoch"] is not None or any(
        map(_undoes_steps, callbacks)
    )


def _callbacks(given: Any) -> list[Callback]:
    # A list of Keras, which has such a list, a list, or one.
    given = getattr(given, "callbacks", given)
    return list(backend.flatten(given)) if given is not None else []


def _undoes_steps(callback: Callback) -> bool:
    names = {each.__name__ for each in type(callback).mro()}
    return "BackupAndRestore" in names


def _train_a_step(
    fit: Callable[..., Any], call: inspect.BoundArguments
) -> None:
    """Traces the step of a `fit` while the others train without this rank."""
    model = call.arguments["self"]
    for callback in _callbacks(call.arguments["callbacks"]):
        # It must be the step that the others have traced.
        if isinstance(callback, LearningRateScheduleCallback):
            callback.prepare_step(model)
    alone = dict(
        call.arguments,
        # Whatever `steps_per_execution` is.
        x=call.arguments["x"].take(1),
        epochs=call.arguments["initial_epoch"] + 1,
        callbacks=None,
        validation_data=None,
        validation_split=0.0,
        verbose=0,
    )
    fit(**alone)


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
