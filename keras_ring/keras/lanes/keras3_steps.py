"""The batches, steps and results of Keras 3: what `Steps` describes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
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

from keras_ring._typing import (
    Callback,
    Dataset,
    Model,
    Tensor,
)
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import deterministic_random
from keras_ring.keras.lanes.batch_source import (
    CountedAnew,
    Shortened,
    Source,
    static_rows,
    training_data,
)
from keras_ring.keras.lanes.keras3_functions import (
    is_by_rows,
    mask_of,
    set_mask,
)
from keras_ring.keras.lanes.keras3_models import (
    has_known_layers,
    has_own_metrics,
    is_own_test_step,
    is_own_train_step,
)
from keras_ring.keras.lanes.patching import replaced

__all__ = [
    "has_known_layers",
    "has_own_metrics",
    "is_by_rows",
    "is_own_test_step",
    "is_own_train_step",
    "mask_of",
    "set_mask",
]

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
                    for leaf in backend.flatten(adapter._inputs)
                    if leaf is not None
                ),
            )
        if isinstance(adapter, PyDatasetAdapter):
            return Source("PyDataset", count)
        if isinstance(adapter, GeneratorDataAdapter):
            return Source("generator", count)
        return Source("dataset", count, None, static_rows(self.dataset))

    def set_num_batches(self, count: int) -> None:
        iterator = self._iterator
        iterator.steps_per_epoch = None
        iterator.data_adapter = Shortened(iterator.data_adapter, count)
        iterator._num_batches = count

    def divide_num_batches(self, parts: int) -> None:
        iterator = self._iterator
        if iterator.steps_per_epoch:
            iterator.steps_per_epoch = -(-iterator.steps_per_epoch // parts)
        count = iterator.data_adapter.num_batches
        if count is not None:
            count = -(-count // parts)
            iterator.data_adapter = Shortened(iterator.data_adapter, count)
            iterator._num_batches = count

    def count_anew(self) -> None:
        iterator = self._iterator

        def forget() -> None:
            iterator._num_batches = None

        iterator.data_adapter = CountedAnew(iterator.data_adapter, forget)

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
        count: int | None = self._iterator.data_adapter.num_batches
        return count


# The draws of layers are determined by state variables, and need no more.
numbers_of_rank = deterministic_random.graph_seed


def read_nothing(wanted: dict[str, Any]) -> None:
    """Makes the iterator over batches that `fit` would make, and reads none.

    Args:
        wanted: Dictionary of the arguments of `fit` by name.
    """
    data = training_data(wanted, array_slicing.train_validation_split)
    _ITERATOR(distribute_strategy=tf.distribute.get_strategy(), **data)


def add_callbacks(callbacks: Any, ours: list[Callback]) -> None:
    callbacks.callbacks[:0] = ours
    for each in ours:
        each.set_model(callbacks._model)
        each.set_params(callbacks.params)


@contextlib.contextmanager
def without_chance(rows: deterministic_random.Rows | None) -> Iterator[None]:
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
    del model
    return True
