"""Losses and metrics that Keras 3 calls with the rows of a batch.

What a program has compiled a model with is called in one place each, with
`y_true`, `y_pred` and weights, and knows nothing else of the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras.src import backend
from keras.src.trainers import compile_utils

from keras_ring._keras.patching import patch_once
from keras_ring._typing import Metric, Tensor

# Called with what computes a loss of rows, and with `y_true`, `y_pred` and
# weights, in its place.
AroundLoss = Callable[[Callable[..., Tensor], Any, Any, Any], Tensor]
# Called with metrics, and with `y_true`, `y_pred` and weights, to update them.
AroundMetrics = Callable[[list[Metric], Any, Any, Any], None]

# Of Keras' own: those that may look across rows.
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
    """A loss that is called by way of another function.

    Args:
        loss: What the program has compiled a model with.
        around: As of `hook_functions`.
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
            # Not made yet, as while it is copied.
            raise AttributeError(name)
        return getattr(self._loss, name)


def hook_functions(
    around_loss: AroundLoss, around_metrics: AroundMetrics, purpose: str
) -> None:
    """Has functions call the losses and metrics that models are compiled with.

    Args:
        around_loss: Called with each loss of which it is not known that it
            computes each row by itself, and with what it is to be called with.
        around_metrics: Called with the metrics of one output, and with what
            they are to be updated with.
        purpose: String, what for.
    """

    def around_get(get: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get)
        def get_loss(identifier: Any, y_true: Any, y_pred: Any) -> Any:
            loss = get(identifier, y_true, y_pred)
            if loss is None or is_by_rows(loss):
                return loss
            return _Loss(loss, around_loss)

        return get_loss

    def around_update(update: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(update)
        def update_state(
            self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
        ) -> None:
            around_metrics(self.metrics, y_true, y_pred, sample_weight)

        return update_state

    patch_once(compile_utils, "get_loss", around_get, purpose)
    patch_once(
        compile_utils.MetricsList, "update_state", around_update, purpose
    )


def is_by_rows(function: Any) -> bool:
    """Whether a loss or metric is known to compute each row by itself.

    Args:
        function: A loss, or a metric that is a mean over what a function
            returns. Other metrics of Keras count.
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
    """Whether a function, a class or the class of an object is Keras' own."""
    if not hasattr(thing, "__name__"):
        thing = type(thing)
    return str(getattr(thing, "__module__", "")).split(".")[0] == "keras"


def mask_of(tensor: Any) -> Tensor:
    """Returns the mask of what a layer has returned, `None` if it has none."""
    return backend.get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Tensor) -> None:
    """Gives a tensor a mask."""
    backend.set_keras_mask(tensor, mask)
