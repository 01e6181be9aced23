"""The batches that each rank evaluates: those of one process, divided.

Nothing is padded or left out, because no step waits for another rank. A rank
without a batch evaluates one of another rank, so that it makes the same calls,
but its results do not count.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Array, PyDataset, Structure
from keras_ring.core.process_sets import ProcessSet
from keras_ring.keras.agreement import same_data
from keras_ring.keras.backends import backend, tf_data
from keras_ring.keras.lanes import compat

_OTHERWISE = (
    "`model.predict` and `model.evaluate` give each rank the results of its "
    "own."
)
_BATCH_SIZE = 32  # Keras' default


@dataclasses.dataclass
class Part:
    """The part of the data that a rank evaluates.

    Args:
        data: Three structures: inputs, targets and weights, or `None`.
        batch_size: Integer, or `None` if the data come in batches.
        is_stand_in: Boolean, whether the results of this part do not count.
        sizes: Function that returns the number of rows of each batch, once
            the batches are read. `None` if the data are divided into one
            contiguous range of rows for each rank, in the order of ranks.
    """

    data: tuple[Any, Structure, Structure]
    batch_size: int | None = None
    is_stand_in: bool = False
    sizes: Callable[[], list[int]] | None = None


def part_of(
    data: tuple[Any, Structure, Structure],
    batch_size: int | None,
    steps: int | None,
    process_set: ProcessSet,
) -> Part:
    """Returns the part of this rank.

    Args:
        data: Inputs, targets and weights, as Keras takes them.
        batch_size: Integer or `None`.
        steps: Integer, the number of batches of all ranks, or `None`.
        process_set: A `kr.ProcessSet`, whose ranks evaluate.
    """
    x = data[0]
    if tf_data.is_dataset(x):
        # TensorFlow is there, since it has made the dataset.
        from keras_ring.keras.inference import dataset_parts

        mine, is_stand_in, sizes = dataset_parts.part_of(
            x, steps, process_set, _OTHERWISE
        )
        return Part((mine, None, None), None, is_stand_in, sizes)
    if isinstance(x, compat.Dataset):
        return _of_py_dataset(x, steps, process_set)
    if isinstance(x, types.GeneratorType):
        return _of_generator(x, steps, process_set)
    return _of_arrays(data, batch_size or _BATCH_SIZE, steps, process_set)


def _bounds(count: int, process_set: ProcessSet) -> tuple[int, int]:
    """Returns the begin and the end of this rank's range of `count` batches."""
    size, rank = process_set.size(), process_set.rank()
    return count * rank // size, count * (rank + 1) // size


def _of_arrays(
    data: tuple[Structure, Structure, Structure],
    batch_size: int,
    steps: int | None,
    process_set: ProcessSet,
) -> Part:
    leaves = [leaf for leaf in backend.flatten(data) if leaf is not None]
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "The data must be arrays of one length above 0, a "
            "`tf.data.Dataset`, a `keras.utils.PyDataset` or a generator. "
            f"Received: arrays of lengths {sorted(lengths)}"
        )
    same_data.require_same_arrays(leaves, process_set, _OTHERWISE)
    (length,) = lengths
    count = -(-length // batch_size)
    if steps is not None:
        count = min(count, steps)
    begin, end = _bounds(count, process_set)
    is_stand_in = begin == end
    rows = range(length)[begin * batch_size : end * batch_size]
    if is_stand_in:
        rows = range(1)

    def taken(leaf: Array | None) -> Array | None:
        if leaf is None:
            return None
        if hasattr(leaf, "iloc"):
            return leaf.iloc[rows.start : rows.stop]
        return leaf[rows.start : rows.stop]

    x, y, weight = backend.map_structure(taken, data)
    return Part((x, y, weight), batch_size, is_stand_in)


def _of_py_dataset(
    dataset: PyDataset, steps: int | None, process_set: ProcessSet
) -> Part:
    count = compat.num_batches(dataset)
    if steps is not None:
        count = steps if count is None else min(count, steps)
    if not count:
        raise ValueError(
            "A `PyDataset` must have batches, and an end, or `steps`. "
            f"Received: {count} batches, steps={steps}"
        )
    begin, end = _bounds(count, process_set)
    is_stand_in = begin == end
    if is_stand_in:
        begin, end = 0, 1
    batches = _Batches(dataset, begin, end)
    return Part((batches, None, None), None, is_stand_in)


class _Batches(compat.Dataset):  # type: ignore[misc, name-defined]
    """Some batches of a `PyDataset`, one after the other."""

    def __init__(self, dataset: PyDataset, begin: int, end: int) -> None:
        super().__init__(**compat.dataset_arguments(dataset))
        self._dataset = dataset
        self._begin = begin
        self._end = end

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, index: int) -> Structure:
        return self._dataset[self._begin + index]

    def on_epoch_begin(self) -> None:
        """Tells the data set."""
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Tells the data set."""
        self._dataset.on_epoch_end()


def _of_generator(
    generator: Iterator[Structure], steps: int | None, process_set: ProcessSet
) -> Part:
    size, rank = process_set.size(), process_set.rank()
    batches = itertools.islice(generator, steps)
    first = next(batches, None)
    if first is None:
        raise ValueError("The generator yielded no batch.")
    mine = itertools.islice(itertools.chain([first], batches), rank, None, size)
    head = next(mine, None)
    is_stand_in = head is None
    sizes: list[int] = []

    def read() -> Iterator[Structure]:
        for batch in itertools.chain([first if head is None else head], mine):
            sizes.append(len(backend.flatten(batch)[0]))
            yield batch

    return Part((read(), None, None), None, is_stand_in, lambda: sizes)
