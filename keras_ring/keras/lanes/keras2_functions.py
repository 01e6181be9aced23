"""Losses and metrics that Keras 2 calls with the rows of a batch."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Metric, Tensor
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes.patching import replaced
from keras_ring.keras.lanes.wrapping import Around

_compile_utils = importlib.import_module(
    f"{keras.__name__}.src.engine.compile_utils"
)
_losses = importlib.import_module(f"{keras.__name__}.src.losses")


class _Loss:
    """A loss that is called through another function.

    Args:
        loss: The loss, as Keras has made it of what a model was compiled with.
        around: The function that is called in its place.
    """

    def __init__(self, loss: Any, around: Callable[..., Tensor]) -> None:
        self._loss = loss
        self._around = around
        self.reduction = loss.reduction

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> Tensor:
        return self._around(self._loss, y_true, y_pred, sample_weight)


def around_losses(call_loss: Callable[..., Tensor]) -> Around:
    """Returns what wraps the losses that models are compiled with."""

    def around(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(call)
        def call_losses(
            self: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any
        ) -> Tensor:
            if not self._built:
                self.build(y_pred)
            losses = [
                each
                if each is None or is_by_rows(each)
                else _Loss(each, call_loss)
                for each in self._losses
            ]
            with replaced(self, {"_losses": losses}):
                return call(self, y_true, y_pred, *args, **kwargs)

        return call_losses

    return around


def around_metrics(update_metrics: Callable[..., None]) -> Around:
    """Returns what wraps the metrics that models are compiled with."""

    def redirected(metric: Metric) -> Callable[..., Any]:
        update = metric.update_state
        is_inside = False

        def update_state(
            y_true: Any, y_pred: Any, sample_weight: Any = None
        ) -> Any:
            nonlocal is_inside
            if is_inside:
                return update(y_true, y_pred, sample_weight=sample_weight)
            is_inside = True
            try:
                return update_metrics([metric], y_true, y_pred, sample_weight)
            finally:
                is_inside = False

        return update_state

    def around(update: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(update)
        def update_state(
            self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
        ) -> None:
            if not self._built:
                self.build(y_pred, self._conform_to_outputs(y_pred, y_true))
            with contextlib.ExitStack() as stack:
                for metric in self.metrics:
                    if not is_by_rows(metric):
                        functions = {"update_state": redirected(metric)}
                        stack.enter_context(replaced(metric, functions))
                update(self, y_true, y_pred, sample_weight)

        return update_state

    return around


def is_by_rows(function: Any) -> bool:
    """Returns whether a loss or metric is known to compute each row by itself.

    Args:
        function: A loss, as Keras calls it, or a metric. Metrics of Keras that
            are no mean over the values of a function count as known.
    """
    if not is_of_keras(function):
        return False
    if isinstance(function, keras.metrics.MeanMetricWrapper):
        inner = function._fn
    elif isinstance(function, _losses.LossFunctionWrapper):
        inner = function.fn
    else:
        return True
    return is_of_keras(inner) and function._fn_kwargs.get("axis", -1) == -1


def is_of_keras(thing: Any) -> bool:
    """Returns whether a function, class or object's class is Keras' own."""
    if not hasattr(thing, "__name__"):
        thing = type(thing)
    package = str(getattr(thing, "__module__", "")).split(".")[0]
    return bool(package == keras.__name__)


def mask_of(tensor: Any) -> Tensor:
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Tensor) -> None:
    tensor._keras_mask = mask
