"""Hooks into the batches, steps and results of Keras 3.

`keras2_steps` has the same names.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend import config
from keras.src.backend.tensorflow import random as random_module
from keras.src.backend.tensorflow import trainer as trainer_module
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import (
    PyDatasetAdapter,
)
from keras.src.utils import file_utils

from keras_ring._typing import (
    Callback,
    Dataset,
    Model,
    Structure,
    Tensor,
)
from keras_ring.keras.lanes import deterministic_random, keras3, layer_functions
from keras_ring.keras.lanes.batch_source import (
    Shortened,
    Source,
    hook_passes,
    static_rows,
    training_data,
)
from keras_ring.keras.lanes.keras3_functions import (
    hook_functions,
    is_by_rows,
    mask_of,
    set_mask,
)
from keras_ring.keras.lanes.keras3_functions import is_of_keras as _is_of_keras
from keras_ring.keras.lanes.patching import patch_once, replaced

__all__ = ["hook_functions", "is_by_rows", "mask_of", "set_mask"]

_ITERATOR = trainer_module.TFEpochIterator
BATCH_NORMALIZATION = keras.layers.BatchNormalization


class BatchIterator:
    """The iterator over batches that Keras makes for one call.

    Args:
        iterator: The `TFEpochIterator` of Keras.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    @property
    def dataset(self) -> Dataset:
        """The batches of one epoch."""
        return self._iterator._distributed_dataset

    @dataset.setter
    def dataset(self, dataset: Dataset) -> None:
        self._iterator._distributed_dataset = dataset

    def source(self) -> Source:
        """Returns the source of the batches."""
        adapter = self._iterator.data_adapter
        count = self._iterator.num_batches
        if isinstance(adapter, ArrayDataAdapter):
            return Source(
                "arrays",
                count,
                adapter._num_samples,
                adapter._batch_size,
                tuple(
                    leaf
                    for leaf in tf.nest.flatten(adapter._inputs)
                    if leaf is not None
                ),
            )
        if isinstance(adapter, PyDatasetAdapter):
            return Source("PyDataset", count)
        if isinstance(adapter, GeneratorDataAdapter):
            return Source("generator", count)
        return Source("dataset", count, None, static_rows(self.dataset))

    def set_num_batches(self, count: int) -> None:
        """Sets the number of batches of an epoch, from the first on."""
        iterator = self._iterator
        iterator.steps_per_epoch = None
        iterator.data_adapter = Shortened(iterator.data_adapter, count)
        iterator._num_batches = count

    def divide_num_batches(self, parts: int) -> None:
        """Divides the number of batches of an epoch, rounding up."""
        iterator = self._iterator
        if iterator.steps_per_epoch:
            iterator.steps_per_epoch = -(-iterator.steps_per_epoch // parts)
        count = iterator.data_adapter.num_batches
        if count is not None:
            count = -(-count // parts)
            iterator.data_adapter = Shortened(iterator.data_adapter, count)
            iterator._num_batches = count

    def num_executed_batches(self) -> int | None:
        """Returns the batches that one pass reads, or `None` if not known.

        With `steps_per_execution`, Keras executes several steps at a time, and
        the last time as many, unless the data end.
        """
        steps: int | None = self._iterator.num_batches
        at_once = int(self._iterator.steps_per_execution)
        if steps is not None:
            steps = -(-steps // at_once) * at_once
        known = [n for n in (steps, self.num_batches_of_data) if n is not None]
        return min(known, default=None)

    @property
    def num_batches_of_data(self) -> int | None:
        """The number of batches, or `None` if not known or infinite."""
        count: int | None = self._iterator.data_adapter.num_batches
        return count


def hook_batches(
    made: Callable[[BatchIterator], Any],
    begun: Callable[[Any], None],
    purpose: str,
) -> None:
    """Hooks into the iterator of each call of `fit` and its like.

    Args:
        made: Callable, called with the `BatchIterator` when it is made, before
            it is read. It may change what the iterator reads.
        begun: Callable, called with what `made` has returned when a pass over
            the data is about to begin.
        purpose: String, the purpose of the hook.
    """
    hook_passes(_ITERATOR, "reset", BatchIterator, made, begun, purpose)


def hook_train_step(
    around: Callable[
        [Model, Callable[[Structure], Any]], Callable[[Structure], Any]
    ],
    purpose: str,
) -> None:
    """Wraps the training step of each model.

    Args:
        around: Callable that takes the model and its `train_step` and returns
            the function that Keras calls in its place.
        purpose: String, the purpose of the hook.
    """

    def around_make(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def make_function(self: Model, force: bool = False) -> Any:
            if self.train_function is not None and not force:
                return make(self, force)
            own = vars(self).get("train_step")
            train_step = around(self, self.train_step)
            # Bypasses the model's own `__setattr__`, which tracks attributes.
            object.__setattr__(self, "train_step", train_step)
            try:
                return make(self, force)
            finally:
                if own is None:
                    object.__delattr__(self, "train_step")
                else:
                    object.__setattr__(self, "train_step", own)

        return make_function

    patch_once(keras.Model, "make_train_function", around_make, purpose)


# The draws of layers are determined by state variables, and need no more.
numbers_of_rank = deterministic_random.graph_seed


def hook_chance(purpose: str) -> None:
    """Makes `keras.random` without a seed differ between ranks only in steps.

    All ranks then share its state, so they draw the same numbers between steps.

    Args:
        purpose: String, the purpose of the hook.
    """

    def around_next(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(draw)
        def next_of_rank(self: Any, *args: Any, **kwargs: Any) -> Tensor:
            drawn = draw(self, *args, **kwargs)
            is_global = keras3.is_shared_seed(self.state)
            return deterministic_random.of_rank(drawn) if is_global else drawn

        return next_of_rank

    deterministic_random.is_of_steps = True
    patch_once(keras.random.SeedGenerator, "next", around_next, purpose)


def hook_means(
    counts: Callable[[Any, Structure, Structure], tuple[Structure, Structure]],
    purpose: str,
) -> None:
    """Hooks into the updates of `Mean` and `Sum` metrics.

    Args:
        counts: Callable that takes the metric, values and weights, and returns
            the values and weights that the metric is updated with.
        purpose: String, the purpose of the hook.
    """

    def around_update(update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def update_state(
            self: Any, values: Tensor, sample_weight: Tensor = None
        ) -> Any:
            values, sample_weight = counts(self, values, sample_weight)
            return update(self, values, sample_weight=sample_weight)

        return update_state

    for metric in (keras.metrics.Mean, keras.metrics.Sum):
        patch_once(metric, "update_state", around_update, purpose)


def is_own_train_step(model: Model) -> bool:
    """Returns whether a model overrides `train_step` or `compute_loss`."""
    return any(
        getattr(type(model), name, None) is not getattr(keras.Model, name)
        for name in ("train_step", "compute_loss", "_compute_loss")
    )


def is_own_test_step(model: Model) -> bool:
    """Returns whether a model overrides `test_step` or `compute_metrics`."""
    is_own = type(model).test_step is not keras.Model.test_step
    return is_own or has_own_metrics(model)


def has_own_metrics(model: Model) -> bool:
    """Returns whether a model overrides `compute_metrics`."""
    return type(model).compute_metrics is not keras.Model.compute_metrics


def read_nothing(wanted: dict[str, Any]) -> None:
    """Makes the iterator over batches that `fit` would make, and reads none.

    Args:
        wanted: Dictionary of the arguments of `fit` by name.
    """
    data = training_data(wanted, array_slicing.train_validation_split)
    _ITERATOR(distribute_strategy=tf.distribute.get_strategy(), **data)


def add_callbacks(callbacks: Any, ours: list[Callback]) -> None:
    """Inserts callbacks at the front of an existing list.

    Args:
        callbacks: A `keras.callbacks.CallbackList`.
        ours: List of the callbacks to insert.
    """
    callbacks.callbacks[:0] = ours
    for each in ours:
        each.set_model(callbacks._model)
        each.set_params(callbacks.params)


@contextlib.contextmanager
def without_chance(rows: deterministic_random.Rows | None) -> Iterator[None]:
    """Replaces random numbers by deterministic ones in the context.

    Random numbers of NumPy are not replaced.

    Args:
        rows: The `Rows` of a batch that the numbers are for, or `None` for
            constants.
    """
    drawn = deterministic_random.Drawn(
        deterministic_random.numbers(rows), keras.config.floatx
    )
    of_any, dropout = drawn.of_tensorflow(), {"dropout": drawn.dropout}
    of_keras: dict[str, Callable[..., Tensor]] = {
        **of_any,
        **dropout,
        "randint": drawn.randint,
    }
    with (
        replaced(random_module, of_keras),
        replaced(tf.random, of_any),
        replaced(tf.nn, dropout),
    ):
        yield


def has_known_losses(model: Model) -> bool:
    """Returns whether the losses of a model need no check, which is always so.

    Those that are not Keras' own are computed from all rows (`hook_functions`).
    """
    del model
    return True


def has_known_layers(model: Model) -> bool:
    """Returns whether a model has only layers and functions of Keras.

    These compute each row by itself, except `BatchNormalization`.
    """
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
        _is_of_keras(type(layer))
        and not isinstance(layer, keras.layers.Lambda)
        and layer_functions.are_known(layer)
        for layer in layers
    )


def hook_downloads(
    alone: Callable[[str], contextlib.AbstractContextManager[None]],
    purpose: str,
) -> None:
    """Makes `keras.utils.get_file` run in a context.

    Args:
        alone: Callable that takes the directory where Keras keeps files and
            returns the context.
        purpose: String, the purpose of the hook.
    """
    get_file = file_utils.get_file

    def around(get: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get)
        def get_alone(*args: Any, **kwargs: Any) -> Any:
            with alone(config.keras_home()):
                return get(*args, **kwargs)

        return get_alone

    # Each dataset module of Keras has imported the function by name.
    for module in list(sys.modules.values()):
        if vars(module).get("get_file") is get_file:
            patch_once(module, "get_file", around, purpose)
