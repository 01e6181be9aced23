"""The batches, steps and results of Keras 2: what `Steps` describes."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_ring._typing import (
    Callback,
    Dataset,
    Model,
    Tensor,
)
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes import deterministic_random, layer_functions
from keras_ring.keras.lanes.batch_source import (
    Shortened,
    Source,
    static_rows,
    training_data,
)
from keras_ring.keras.lanes.keras2_functions import (
    is_by_rows,
    mask_of,
    set_mask,
)
from keras_ring.keras.lanes.keras2_functions import is_of_keras as _is_of_keras
from keras_ring.keras.lanes.patching import replaced

__all__ = ["is_by_rows", "mask_of", "set_mask"]


def _module(name: str) -> Any:
    """Returns an internal module of Keras, from `keras` or `tf_keras`."""
    return importlib.import_module(f"{keras.__name__}.src.{name}")


_data_adapter = _module("engine.data_adapter")
_base_layer = _module("engine.base_layer")
_backend = _module("backend")
_data_utils = _module("utils.data_utils")

# The base class, which that of TensorFlow 1 has as well.
BATCH_NORMALIZATION = _module(
    "layers.normalization.batch_normalization"
).BatchNormalizationBase


class BatchIterator:
    """The `DataHandler` that Keras makes for one call.

    Args:
        handler: The `DataHandler` of Keras.
    """

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    @property
    def dataset(self) -> Dataset:
        """The batches; of arrays, those of all epochs one after another."""
        return self._handler._dataset

    @dataset.setter
    def dataset(self, dataset: Dataset) -> None:
        self._handler._dataset = dataset

    def source(self) -> Source:
        adapter = self._handler._adapter
        count = self._handler._inferred_steps
        if isinstance(adapter, _data_adapter.KerasSequenceAdapter):
            return Source("PyDataset", count)
        if isinstance(adapter, _data_adapter.GeneratorDataAdapter):
            return Source("generator", count)
        if isinstance(adapter, _data_adapter.DatasetAdapter):
            return Source("dataset", count, None, static_rows(self.dataset))
        size, rest = adapter.batch_size(), adapter.partial_batch_size()
        samples = adapter.get_size() * size
        if rest:
            samples += rest - size
        return Source("arrays", count, samples, size)

    def set_num_batches(self, count: int) -> None:
        self._handler._steps_per_epoch = count
        self._handler._inferred_steps = count

    def divide_num_batches(self, parts: int) -> None:
        handler = self._handler
        for name in ("_steps_per_epoch", "_inferred_steps"):
            steps = getattr(handler, name)
            if steps is not None and steps > 0:
                setattr(handler, name, -(-steps // parts))
        size = handler._adapter.get_size()
        if size is not None:
            # Keras asks for the size again at each epoch.
            handler._adapter = Shortened(handler._adapter, -(-size // parts))

    def count_anew(self) -> None:
        # No optimizer of Keras 2 is in an elastic job, so none has others.
        return

    def num_executed_batches(self) -> int | None:
        known = (self._handler._inferred_steps, self.num_batches_of_data)
        return min((n for n in known if n is not None), default=None)

    @property
    def num_batches_of_data(self) -> int | None:
        adapter = self._handler._adapter
        count: int | None = adapter.get_size()
        if count is None and isinstance(adapter, _data_adapter.DatasetAdapter):
            found = int(adapter.get_dataset().cardinality())
            count = found if found >= 0 else None
        return count


# `Dropout` and its like draw by the seed of the graph as well.
numbers_of_rank = deterministic_random.graph_seed


def is_own_train_step(model: Model) -> bool:
    return any(
        getattr(type(model), name) is not getattr(keras.Model, name)
        for name in ("train_step", "compute_loss", "compute_metrics")
    )


def is_own_test_step(model: Model) -> bool:
    return any(
        getattr(type(model), name) is not getattr(keras.Model, name)
        for name in ("test_step", "compute_metrics")
    )


def has_own_metrics(model: Model) -> bool:
    """Returns `False`: a `compute_metrics` of a model gets no special care.

    Metrics of Keras 2 do not tell that they are updated in it.
    """
    del model
    return False


def read_nothing(wanted: dict[str, Any]) -> None:
    """Makes the `DataHandler` that `fit` would make, and reads no batch.

    Args:
        wanted: Dictionary of the arguments of `fit` by name.
    """
    data = training_data(wanted, _data_adapter.train_validation_split)
    _data_adapter.DataHandler(**data)


def add_callbacks(callbacks: Any, ours: list[Callback]) -> None:
    for each in ours:
        each.set_model(callbacks.model)
        each.set_params(getattr(callbacks, "params", None))
    callbacks.callbacks[:0] = ours
    # Keras determines this when it makes the list.
    callbacks._should_call_train_batch_hooks = True


@contextlib.contextmanager
def without_chance(rows: deterministic_random.Rows | None) -> Iterator[None]:
    drawn = deterministic_random.Drawn(
        deterministic_random.numbers(rows), keras.backend.floatx
    )
    of_any, dropout = drawn.of_tensorflow(), {"dropout": drawn.dropout}
    of_layers: dict[str, Callable[..., Tensor]] = {
        "random_normal": drawn.normal,
        "truncated_normal": drawn.normal,
        "random_uniform": drawn.uniform,
        **dropout,
    }
    with contextlib.ExitStack() as stack:
        for owner, functions in (
            (
                _backend.RandomGenerator,
                {name: _method(each) for name, each in of_layers.items()},
            ),
            (tf.random, of_any),
            (tf.nn, dropout),
            # Keras imports TensorFlow under this name.
            (tf.compat.v2.random, of_any),
            (tf.compat.v2.nn, dropout),
        ):
            stack.enter_context(replaced(owner, functions))
        yield


def _method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def called(self: object, *args: Any, **kwargs: Any) -> Tensor:
        del self
        return function(*args, **kwargs)

    return called


def has_known_losses(model: Model) -> bool:
    del model
    return True


# Layers that a functional model makes of `add_loss` and of calls that are no
# layers, which may compute anything.
_ANY = (
    keras.layers.Lambda,
    _base_layer.AddLoss,
    _base_layer.TensorFlowOpLayer,
)
_ANY_MODULES = tuple(
    f"{keras.__name__}.src.{name}"
    for name in ("layers.core.tf_op_layer", "layers.core.lambda_layer")
)


def has_known_layers(model: Model) -> bool:
    return all(
        _is_of_keras(type(layer))
        and not isinstance(layer, _ANY)
        and type(layer).__module__ not in _ANY_MODULES
        and layer_functions.are_known(layer)
        for layer in model._flatten_layers()
    )
