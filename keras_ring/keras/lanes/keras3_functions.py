"""Losses and metrics that Keras 3 calls with the rows of a batch.

Keras calls the losses that a model is compiled with in one place, and the
metrics in another. They get `y_true`, `y_pred` and weights, and see nothing
else of the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras.src import backend
from keras.src.trainers import compile_utils

from keras_ring._typing import Metric, Tensor
from keras_ring.keras.lanes.wrapping import Around

# Called in place of a loss, with the loss, `y_true`, `y_pred` and weights.
AroundLoss = Callable[[Callable[..., Tensor], Any, Any, Any], Tensor]
# Called with metrics, `y_true`, `y_pred` and weights, to update the metrics.
AroundMetrics = Callable[[list[Metric], Any, Any, Any], None]

# Losses of Keras that may use several rows for one.
_ACROSS_ROWS = (
    keras.losses.circle,
    keras.losses.dice,
    keras.losses.tversky,
)
_WRAPPERS = (
    compile_utils.losses_module.LossFunctionWrapper,
    keras.metrics.MeanMetricWrapper,
)


class _Loss:
    """A loss that is called through another function.

    Args:
        loss: The loss that the program has compiled a model with.
        around: The function that is called in its place.
    """

    def __init__(self, loss: Any, around: AroundLoss) -> None:
        self._loss = loss
        self._around = around

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> Tensor:
        return self._around(self._loss, y_true, y_pred, sample_weight)

    def __getattr__(self, name: str) -> Any:
        if name == "_loss":
            # The attribute is not set yet, as while the object is copied.
            raise AttributeError(name)
        return getattr(self._loss, name)


def around_loss(call_loss: AroundLoss) -> Around:
    """Returns what wraps the losses that models are compiled with."""

    def around(get: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get)
        def get_loss(identifier: Any, y_true: Any, y_pred: Any) -> Any:
            loss = get(identifier, y_true, y_pred)
            if loss is None or is_by_rows(loss):
                return loss
            return _Loss(loss, call_loss)

        return get_loss

    return around


def around_metrics(update_metrics: AroundMetrics) -> Around:
    """Returns what updates the metrics that models are compiled with."""

    def around(update: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(update)
        def update_state(
            self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
        ) -> None:
            update_metrics(self.metrics, y_true, y_pred, sample_weight)

        return update_state

    return around


def is_by_rows(function: Any) -> bool:
    """Returns whether a loss or metric is known to compute each row by itself.

    Args:
        function: A loss or a metric. Metrics of Keras that are no mean over
            the values of a function count as known.
    """
    if not is_of_keras(function):
        return False
    if not isinstance(function, _WRAPPERS):
        return not _may_cross(function, {})
    inner = getattr(function, "fn", None) or getattr(function, "_fn", None)
    arguments = function._fn_kwargs
    if _crosses_by_axis(arguments) or _may_cross(inner, arguments):
        return False
    return is_of_keras(inner) and (
        not isinstance(inner, keras.losses.Loss) or is_by_rows(inner)
    )


def _may_cross(function: Any, arguments: dict[str, Any]) -> bool:
    return function in _ACROSS_ROWS and "axis" not in arguments


def _crosses_by_axis(arguments: dict[str, Any]) -> bool:
    if "axis" not in arguments:
        return False
    axis = arguments["axis"]
    axes = axis if isinstance(axis, Iterable) else [axis]
    return any(each is None or (each < 1 and each != -1) for each in axes)


def is_of_keras(thing: Any) -> bool:
    """Returns whether a function, class or object's class is Keras' own."""
    if not hasattr(thing, "__name__"):
        thing = type(thing)
    return str(getattr(thing, "__module__", "")).split(".")[0] == "keras"


def mask_of(tensor: Any) -> Tensor:
    return backend.get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Tensor) -> None:
    backend.set_keras_mask(tensor, mask)
