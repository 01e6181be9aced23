"""Runs callbacks that reach outside of the program on rank 0 alone.

For example, an experiment tracker has one run, with one row per epoch. These
callbacks are detected by their code (`outside`). All others run on all ranks,
so that the state that they keep is available to the program, and their changes
take effect everywhere.

A callback that reaches outside may also change the training, through anything
that it calls, which its code does not tell. So after each of its methods that
all ranks call, rank 0 compares the training with its state before, and the
others receive what has changed: `stop_training` and other plain attributes of
the model and its optimizer, the learning rate, the state of the random numbers
of Python, NumPy, TensorFlow and Keras, metrics, as an evaluation leaves them,
and weights. After batches, weights are compared only if the callback's code
changes some, because that takes a pass over all weights. An error is raised on
all ranks. At the end, all ranks receive the state that the callback itself
keeps.

Some changes cannot be sent, such as frozen layers or a `compile`. A callback
that makes them runs on all ranks, and a notice says so.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Callback, Model, Variable
from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.core.objects import as_bytes, broadcast_object
from keras_ring.core.rank_zero import error_that_pickles
from keras_ring.keras.backends import backend
from keras_ring.keras.callbacks.rank_zero_only import RankZeroOnly
from keras_ring.keras.fit import one_writer
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.model import model_optimizers
from keras_ring.unchanged import outside, random_state, shared_counts

_PLAIN = (bool, int, float, str, type(None))
# Methods that all ranks call equally often, which those for evaluated batches
# are not.
_SHARED = (
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_begin",
    "on_test_end",
)
_LAST = "on_train_end"
# Attributes of a callback that each rank sets itself.
_OWN = frozenset({"model", "_model", "params", "validation_data"})


def on_rank_zero(callbacks: list[Callback]) -> list[Callback]:
    """Returns the callbacks of `fit`, some wrapped to run on rank 0 alone.

    Args:
        callbacks: List of the callbacks of the program.
    """
    return [
        _alone_if_outside(callback, number)
        for number, callback in enumerate(callbacks)
    ]


def _alone_if_outside(callback: Callback, number: int) -> Callback:
    if (
        not outside.is_of_program_or_others(callback)
        or one_writer.is_on_every_rank(callback)
        or isinstance(callback, RankZeroOnly)
        # All ranks read what rank 0 has written.
        or isinstance(callback, keras.callbacks.BackupAndRestore)
    ):
        return callback
    found = outside.reach(callback)
    if not found.outside:
        return callback
    name, by = type(callback).__name__, ", ".join(found.outside)
    if found.keeps:
        say(
            f"callback {name} runs on each of the {topology.size()} ranks, as "
            "it changes the training, reads data in the order that its "
            "earlier readings left, or works with ranks; what it does "
            f"outside ({by}) it does as many times. "
            "`kr.callbacks.RankZeroOnly` is for what only looks"
        )
        return callback
    say(
        f"callback {name} reaches outside ({by}): run by rank 0 of "
        f"{topology.size()}, and what it changes of the training, by all"
    )
    return _OnRankZero(callback, number, found.changes_weights)


class _OnRankZero(RankZeroOnly):
    """A callback that runs on rank 0, and whose changes the others receive.

    Args:
        callback: A `keras.callbacks.Callback`.
        number: Integer, its index in the callbacks of `fit`, the same on all
            ranks.
        changes_weights: Boolean, whether it may change weights, so that they
            are compared after batches, too.
    """

    def __init__(
        self, callback: Callback, number: int, changes_weights: bool
    ) -> None:
        super().__init__(callback)
        self._name = f"auto/callbacks/{number}"
        self._changes_weights = changes_weights

    def set_params(self, params: dict[str, Any] | None) -> None:
        """Sets the parameters, on other ranks by the base method alone."""
        super().set_params(params)
        if topology.rank() > 0:
            keras.callbacks.Callback.set_params(self.callback, params)

    def set_model(self, model: Model) -> None:
        """Sets the model, on other ranks by the base method alone."""
        super().set_model(model)
        if topology.rank() > 0:
            keras.callbacks.Callback.set_model(self.callback, model)

    def _has(self, name: str) -> bool:
        return name == _LAST or super()._has(name)

    def _run(self, name: str, args: Any, kwargs: Any) -> None:
        if name not in _SHARED:
            if topology.rank() == 0:
                super()._run(name, args, kwargs)
            return
        change = None
        if topology.rank() == 0:
            change = self._change(name, args, kwargs)
        _follow(
            self.model,
            self.callback,
            broadcast_object(change, name=self._name),
        )

    def _runs_here(self) -> bool:
        # The other ranks take part to receive the changes.
        return True

    def _change(self, name: str, args: Any, kwargs: Any) -> _Change:
        """Runs a method of the callback and returns what it has changed."""
        all_of_it = "batch" not in name or self._changes_weights
        before = _state_of(self.model, all_of_it)
        error: Exception | None = None
        try:
            super()._run(name, args, kwargs)
        except Exception as raised:
            error = raised
        after = _state_of(self.model, all_of_it)
        metrics, weights = (
            {
                index: compat.as_numpy(variables[index])
                for index, digest in enumerate(now)
                if len(earlier) == len(now) and digest != earlier[index]
            }
            for variables, earlier, now in (
                (_metrics(self.model), before.metrics, after.metrics),
                (_variables(self.model), before.weights, after.weights),
            )
        )
        return _Change(
            None if error is None else error_that_pickles(error),
            [
                {
                    key: value
                    for key, value in found.items()
                    if key not in earlier or earlier[key] != value
                }
                for found, earlier in zip(
                    after.plain, before.plain, strict=True
                )
            ],
            None if after.rate == before.rate else after.rate,
            None
            if random_state.is_same(after.chance, before.chance)
            else after.chance,
            metrics,
            weights,
            _kept_by(self.callback) if name == _LAST else {},
        )


class _State(NamedTuple):
    """The state of the training that is compared."""

    plain: list[dict[str, Any]]
    rate: float | None
    chance: random_state.State
    # Checksums of the variables.
    metrics: list[int]
    weights: list[int]


class _Change(NamedTuple):
    """The changes that a callback has made on rank 0."""

    error: Exception | None
    # Plain attributes of the model, and of its optimizer.
    plain: list[dict[str, Any]]
    rate: float | None
    chance: random_state.State | None
    # Values by the indices of the variables.
    metrics: dict[int, npt.NDArray[Any]]
    weights: dict[int, npt.NDArray[Any]]
    # Attributes of the callback itself.
    kept: dict[str, Any]


def _state_of(model: Model, all_of_it: bool) -> _State:
    optimizer = getattr(model, "optimizer", None)
    rate = None
    if optimizer is not None and compat.has_settable_learning_rate(optimizer):
        rate = compat.learning_rate(optimizer)
    return _State(
        [_plain(model), _plain(optimizer)],
        rate,
        random_state.get(),
        _digests(_metrics(model)),
        _digests(_variables(model)) if all_of_it else [],
    )


def _digests(variables: list[Variable]) -> list[int]:
    return [
        zlib.crc32(np.ascontiguousarray(compat.as_numpy(each)).data)
        for each in variables
    ]


def _plain(owner: Any) -> dict[str, Any]:
    if owner is None:
        return {}
    return {
        key: value
        for key, value in vars(owner).items()
        if type(value) in _PLAIN
    }


def _metrics(model: Model) -> list[Variable]:
    """Returns the variables of metrics, in which each rank counts its own."""
    found: list[Variable] = compat.metrics_variables(model)
    return found


def _variables(model: Model) -> list[Variable]:
    """Returns the variables of the training that are the same on all ranks."""
    own = {
        id(each)
        for each in [
            *compat.metrics_variables(model),
            *compat.seed_variables(model),
        ]
    }
    variables = [each for each in model.variables if id(each) not in own]
    for optimizer in model_optimizers.optimizers_of(model).values():
        variables += compat.optimizer_variables(optimizer)
    return list({id(each): each for each in variables}.values())


def _follow(model: Model, callback: Callback, change: _Change) -> None:
    """Applies the changes of a callback on rank 0 to the other ranks.

    An error of the callback is raised on all ranks.
    """
    if topology.rank() > 0:
        optimizer = getattr(model, "optimizer", None)
        for owner, values in zip((model, optimizer), change.plain, strict=True):
            for key, value in values.items():
                setattr(owner, key, value)
        if change.rate is not None:
            compat.set_learning_rate(optimizer, change.rate)
        if change.chance is not None:
            random_state.set_to(change.chance)
        for variables_of, arrays in (
            (_metrics, change.metrics),
            (_variables, change.weights),
        ):
            variables = variables_of(model) if arrays else []
            for index, array in arrays.items():
                compat.assign(variables[index], array)
        for key, value in change.kept.items():
            setattr(callback, key, value)
    if change.metrics:
        metrics = _metrics(model)
        for number in change.metrics:
            shared_counts.note_of_all(metrics[number])
    if change.error is not None:
        raise change.error


def _kept_by(callback: Callback) -> dict[str, Any]:
    of_keras = (keras.Model, keras.layers.Layer, keras.callbacks.Callback)
    return {
        key: value
        for key, value in vars(callback).items()
        if key not in _OWN
        and not isinstance(value, of_keras)
        and not backend.is_tensor(value)
        and as_bytes(value) is not None
    }
