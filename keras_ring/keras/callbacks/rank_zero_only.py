"""Runs a callback on rank 0 only."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Callback, Model
from keras_ring.core import topology
from keras_ring.keras.fit import one_writer, skipped_batches
from keras_ring.keras.lanes import keras
from keras_ring.keras.lanes.missed_calls import MissedCalls


class RankZeroOnly(keras.callbacks.Callback):  # type: ignore[misc]
    """Runs another callback on rank 0, and nothing on the other ranks.

    Use it for callbacks of your own that write files or show something. Those
    of Keras, such as `CSVLogger` and `TensorBoard`, do so on one rank anyway.
    Do not use it for a callback that acts on the training, such as
    `EarlyStopping`: the other ranks would not follow.
    The callback must not need other ranks: it must call no collective.

    If an elastic job loses rank 0, the callback goes on at the next one: there,
    it first gets its parameters, its model, and `on_train_begin` and
    `on_epoch_begin` of the training and the epoch that have begun.

    It is not called for batches that `kr.callbacks.BackupAndRestore` skips:
    the previous run has called it for these.

    Args:
        callback: A `keras.callbacks.Callback`.

    Example:
    ```python
    plot = keras.callbacks.LambdaCallback(on_epoch_end=draw)
    callbacks = [kr.callbacks.RankZeroOnly(plot)]
    ```
    """

    def __init__(self, callback: Callback) -> None:
        super().__init__()
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(
                "`callback` must be a `keras.callbacks.Callback`. Received: "
                f"{callback!r}"
            )
        self.callback = callback
        self._missed = MissedCalls()
        # Keras need not wait for hooks that the callback does not implement.
        for name in _HOOKS:
            if not self._has(name):
                default = getattr(keras.callbacks.Callback, name)
                setattr(self, name, types.MethodType(default, self))

    def _has(self, name: str) -> bool:
        """Returns whether the callback implements a hook."""
        names = [name]
        if name.startswith("on_train_batch_"):
            # The hook that Keras' own `on_train_batch_*` calls.
            names.append(name.replace("train_", ""))
        return not all(
            getattr(getattr(self.callback, each), "_is_default", False)
            for each in names
        )

    def _runs_here(self) -> bool:
        return topology.rank() == 0

    def _run(self, name: str, args: Any, kwargs: Any) -> None:
        """Calls a hook of the callback while only this rank writes."""
        with one_writer.writing_alone():
            getattr(self.callback, name)(*args, **kwargs)

    def _pass_on(
        self, name: str, call: Callable[[], None], *, here: bool
    ) -> None:
        """Makes a call of the callback, or takes note of it."""
        if not here:
            if topology.is_elastic():
                self._missed.add(name, call)
            return
        # None, unless this rank was another one until now.
        for _, missed in self._missed.take():
            missed()
        call()

    def set_params(self, params: dict[str, Any] | None) -> None:
        """Passes on the parameters of the training."""
        super().set_params(params)
        call = functools.partial(self.callback.set_params, params)
        self._pass_on("set_params", call, here=topology.rank() == 0)

    def set_model(self, model: Model) -> None:
        """Passes on the model."""
        super().set_model(model)
        call = functools.partial(self.callback.set_model, model)
        self._pass_on("set_model", call, here=topology.rank() == 0)


def _on_rank_zero(name: str) -> Callable[..., None]:
    def call(self: RankZeroOnly, *args: Any, **kwargs: Any) -> None:
        of_batch = name.startswith("on_train_batch_")
        if of_batch and skipped_batches.is_skipping(self.model):
            return
        call = functools.partial(self._run, name, args, kwargs)
        self._pass_on(name, call, here=self._runs_here())

    call.__name__ = name
    call.__doc__ = "Passes it on, on rank 0."
    return call


# `on_batch_begin` and `on_batch_end` are what Keras' own `on_train_batch_*`
# call: passed on as well, they would run twice.
_HOOKS = tuple(
    name
    for name in dir(keras.callbacks.Callback)
    if name.startswith("on_") and not name.startswith("on_batch_")
)
for _name in _HOOKS:
    setattr(RankZeroOnly, _name, _on_rank_zero(_name))
