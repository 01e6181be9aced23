"""A rank's part of a `PyDataset` or of a generator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_ring._typing import PyDataset, Structure
from keras_ring.core import topology
from keras_ring.keras.data import epochs
from keras_ring.keras.lanes import compat


class ShardedPyDataset(compat.Dataset):  # type: ignore[misc, name-defined]
    """The batches of a `PyDataset` that belong to this rank.

    Args:
        dataset: A `keras.utils.PyDataset`.
        total: Integer, the number of batches that all ranks read together, or
            `None` if the dataset is infinite.
        shuffle: Boolean, whether the order of batches changes in each epoch.
        seed: Integer, the seed of that order.
    """

    def __init__(
        self, dataset: PyDataset, total: int | None, shuffle: bool, seed: int
    ) -> None:
        super().__init__(**compat.dataset_arguments(dataset))
        self._dataset = dataset
        self._total = total
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = compat.FIRST_EPOCH_OF_PYDATASET
        epochs.register(self)

    @property
    def num_batches(self) -> int | None:
        """The number of batches of this rank; the same on all."""
        return None if self._total is None else self._total // topology.size()

    def __len__(self) -> int:
        if self.num_batches is None:
            raise TypeError("This `PyDataset` has no end.")
        return self.num_batches

    def __getitem__(self, index: int) -> Structure:
        position = topology.rank() + index * topology.size()
        if self._total is None:
            return self._dataset[position]
        if not 0 <= index < len(self):
            raise IndexError(
                f"There are {len(self)} batches. Received: index={index}"
            )
        return self._dataset[int(self._order()[position])]

    def _order(self) -> Any:
        # Only of a dataset that has an end.
        count: Any = compat.num_batches(self._dataset)
        order = np.arange(count)
        if self._shuffle:
            # The order depends on the epoch alone, so a run may start at any.
            entropy = [self._seed, max(self._epoch, 0)]
            order = np.random.default_rng(entropy).permutation(count)
        # `resize` pads by repeating batches from the start.
        return np.resize(order, self._total)

    def set_next_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch that reads the data next."""
        self._epoch = epoch

    def on_epoch_begin(self) -> None:
        """Notifies the dataset."""
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Notifies the dataset, and advances to the order of the next epoch."""
        self._epoch += 1
        self._dataset.on_epoch_end()


def shard_generator(
    generator: Iterator[Structure], uneven: str
) -> Iterator[Structure]:
    """Yields the elements of a generator that belong to this rank.

    Elements are taken in groups of one per rank, so that all ranks reach the
    end after equally many, without communication.

    Args:
        generator: Iterator that yields the same elements on all ranks.
        uneven: `"pad"`, `"drop"` or `"error"`, see `kr.data.shard`.

    Yields:
        Elements of this rank.
    """
    size = topology.size()
    first: list[Structure] = []
    count = 0
    while group := list(itertools.islice(generator, size)):
        first = first or group
        count += len(group)
        if len(group) < size:
            if uneven == "drop":
                return
            if uneven == "error":
                raise ValueError(
                    f"The generator yielded {count} elements, which cannot be "
                    f"split evenly between {size} ranks. Leave out elements "
                    'with `uneven="drop"`, or use some of them twice with '
                    '`uneven="pad"`.'
                )
            padding = itertools.cycle(first)
            group += itertools.islice(padding, size - len(group))
        yield group[topology.rank()]
