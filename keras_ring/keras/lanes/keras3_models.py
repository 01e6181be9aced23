"""Tells what a model of Keras 3 overrides, and what its layers may do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_ring._typing import Logs, Model
from keras_ring.keras.lanes import layer_functions
from keras_ring.keras.lanes.keras3_functions import is_of_keras


def is_own_train_step(model: Model) -> bool:
    """Returns whether a model overrides `train_step` or `compute_loss`."""
    return any(
        getattr(type(model), name, None) is not getattr(keras.Model, name)
        for name in ("train_step", "compute_loss", "_compute_loss")
    )


def is_own_test_step(model: Model) -> bool:
    is_own = type(model).test_step is not keras.Model.test_step
    return is_own or has_own_metrics(model)


def has_own_step(model: Model) -> bool:
    """Returns whether a model overrides `train_step`."""
    return type(model).train_step is not keras.Model.train_step


def replace_train_step(model: Model, around: Callable[..., Any]) -> None:
    """Makes the `train_step` of one model another function around its own."""
    step = around(type(model).train_step)
    # Bypasses the model's own `__setattr__`, which tracks attributes.
    object.__setattr__(model, "train_step", functools.partial(step, model))
    # It is made of the step.
    model.train_function = None


def has_own_metrics(model: Model) -> bool:
    """Returns whether a model overrides `compute_metrics`."""
    return type(model).compute_metrics is not keras.Model.compute_metrics


def has_known_layers(model: Model) -> bool:
    layers = model._flatten_layers()
    # Operations such as `keras.ops.mean`, in a functional model.
    operations = [
        operation
        for layer in layers
        for operation in getattr(layer, "operations", ())
    ]
    if not all(isinstance(each, keras.layers.Layer) for each in operations):
        return False
    return all(
        is_of_keras(type(layer))
        and not isinstance(layer, keras.layers.Lambda)
        and layer_functions.are_known(layer)
        for layer in layers
    )


def in_order(model: Model, results: Logs) -> Any:
    """Returns the results of a batch as Keras does without `return_dict`."""
    return model._flatten_metrics_in_order(results)
