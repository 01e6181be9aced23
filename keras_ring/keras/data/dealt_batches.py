"""A `tf.data.Dataset` of the batches that are dealt out to a rank.

It is the last stage of the input pipeline: that it is asked for a batch tells
that the step on the one before has ended. So it can tell from the steps of the
job what has been trained on, and deals out again what has not.
"""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring._typing import Dataset, Structure
from keras_ring.core import generations, notices, topology
from keras_ring.keras.agreement import same_data
from keras_ring.keras.data import epochs
from keras_ring.keras.data.leases import END, Generation, Leases
from keras_ring.keras.data.part_of_rank import remembered
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring

_DEALT = "_keras_ring_dealt"
_HELD = struct.Struct("<qq")
# Seconds until this rank is told who goes on, once others have been.
_NEXT_GENERATION = 0.001


class Batches:
    """Batches of some data, by their numbers.

    Args:
        read: Function of a number that returns a batch.
        order: Function of the number of an epoch, called when it begins, that
            returns the order of the batches.
        end: Function without arguments, called when an epoch ends.
    """

    def __init__(
        self,
        read: Callable[[int], Structure],
        order: Callable[[int], Sequence[int]],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.read = read
        self.order = order
        self.end = end


def of_arrays(
    arrays: Structure, batch_size: int, shuffle: bool, seed: int
) -> Batches:
    """Returns batches of the rows of arrays."""
    leaves = tf.nest.flatten(arrays)
    length = int(leaves[0].shape[0])
    rows = np.arange(length)

    def order(epoch: int) -> Sequence[int]:
        nonlocal rows
        if shuffle:
            rows = np.random.default_rng([seed, epoch]).permutation(length)
        return range(-(-length // batch_size))

    def read(number: int) -> Structure:
        chosen = rows[number * batch_size : (number + 1) * batch_size]
        return tf.nest.map_structure(
            lambda leaf: np.asarray(same_data.take_rows(leaf, chosen)), arrays
        )

    return Batches(read, order)


def of_py_dataset(
    dataset: Any, count: int, shuffle: bool, seed: int
) -> Batches:
    """Returns the batches of a `keras.utils.PyDataset`."""

    def order(epoch: int) -> Sequence[int]:
        dataset.on_epoch_begin()
        if not shuffle:
            return range(count)
        draw = np.random.default_rng([seed, epoch])
        return [int(number) for number in draw.permutation(count)]

    def read(number: int) -> Structure:
        return tf.nest.map_structure(np.asarray, dataset[number])

    return Batches(read, order, dataset.on_epoch_end)


def _without_lists(batch: Structure) -> Structure:
    """Returns a batch as `tf.data` takes it, which makes a tensor of a list."""
    if isinstance(batch, dict):
        return {key: _without_lists(part) for key, part in batch.items()}
    if isinstance(batch, list | tuple):
        return tuple(map(_without_lists, batch))
    return batch


def _spec(leaf: Any) -> tf.TensorSpec:
    dtype = tf.convert_to_tensor(leaf[:1]).dtype
    return tf.TensorSpec((None, *leaf.shape[1:]), dtype)


class _Dealer:
    """Deals batches out to this rank, epoch by epoch."""

    def __init__(self, batches: Batches, *, pad: bool) -> None:
        global _number_of_dealers
        self._batches = batches
        self._key = f"batches/{_number_of_dealers}"
        _number_of_dealers += 1
        self._epoch = 0
        member, present = _present(self._key)
        self._leases = Leases(member, present, pad=pad)
        self._steps = generations.steps()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="kr-batches")
        self._read_ahead: tuple[int, Future[Structure]] | None = None
        self._loop: object = None
        epochs.register(self)

    def set_next_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch that reads the data next."""
        self._epoch = epoch

    def epoch(self) -> Iterator[Structure]:
        """Yields the batches of this rank in the next epoch."""
        order = self._batches.order(self._epoch)
        self._epoch += 1
        self._end_round()
        self._leases.begin_epoch(order)
        self._read_ahead = None
        self._loop = loop = object()
        while (lease := self._take()) != END:
            yield _without_lists(self._read(lease))
            if self._loop is not loop:
                raise RuntimeError(
                    "Two loops read one `kr.data.batches` at once, so it does "
                    "not know which batches were trained on. Make one for each."
                )
            self._end_round()
        self._end_round()
        self._batches.end()

    def _take(self) -> int:
        while True:
            self._catch_up()
            lease = self._leases.take()
            held = _HELD.pack(self._leases.round, lease)
            if generations.tell(
                self._key, held, self._leases.generation.number
            ):
                return lease
            self._leases.give_back()
            time.sleep(_NEXT_GENERATION)

    def _catch_up(self) -> None:
        after = self._leases.generation.number
        for told in generations.told_after(after, self._key):
            generation = _generation(told)
            self._leases.add(generation)
            rounds = [number for number, _ in generation.in_hand.values()]
            if rounds and max(rounds) - min(rounds) > 1:
                notices.warn_once(
                    "the job has lost a rank while others were "
                    f"{max(rounds) - min(rounds)} batches of a "
                    "`kr.data.batches` apart, so some may be trained on twice, "
                    "or not at all. It is for loops with one update of an "
                    "elastic optimizer for each batch."
                )

    def _end_round(self) -> None:
        """Takes note how the step on the last batch has ended."""
        self._catch_up()
        before, self._steps = self._steps, generations.steps()
        if self._steps.discarded > before.discarded:
            self._leases.end(None)
        elif self._steps.committed > before.committed:
            self._leases.end(self._steps.generation)
        else:
            # It was no step of an elastic optimizer.
            self._leases.end(self._leases.generation.number)

    def _read(self, number: int) -> Structure:
        ahead, self._read_ahead = self._read_ahead, None
        read = self._batches.read
        batch = (
            ahead[1].result()
            if ahead is not None and ahead[0] == number
            else self._reader.submit(read, number).result()
        )
        following = self._leases.following()
        if following is not None:
            self._read_ahead = (
                following,
                self._reader.submit(read, following),
            )
        return batch


# By which ranks tell their data apart: all make the same, in one order.
_number_of_dealers = 0


def _generation(told: generations.Told) -> Generation:
    in_hand = {
        member: _HELD.unpack(text)
        for member, text in zip(told.members, told.texts, strict=True)
        if text
    }
    return Generation(told.generation, told.members, in_hand)


def _present(key: str) -> tuple[int, Generation]:
    """Returns which member this rank is, and the present generation."""
    while True:
        now = topology.topology()
        told = generations.told_after(-1, key)
        if not told:
            if topology.topology().generation == now.generation:
                members = tuple(range(now.size))
                return now.rank, Generation(now.generation, members)
        elif told[-1].generation == now.generation:
            return told[-1].members[now.rank], _generation(told[-1])
        time.sleep(_NEXT_GENERATION)


def dealt(batches: Batches, *, pad: bool) -> Dataset:
    """Returns the dataset of the batches of this rank.

    Args:
        batches: The `Batches` of all ranks.
        pad: Boolean, as in `Leases`.
    """
    dealer = _Dealer(batches, pad=pad)
    example = _without_lists(batches.read(0))
    dataset = tf.data.Dataset.from_generator(
        dealer.epoch, output_signature=tf.nest.map_structure(_spec, example)
    )
    options = tf.data.Options()
    # Whoever asks for a batch has trained on the one before.
    options.experimental_optimization.inject_prefetch = False
    dataset = dataset.with_options(options)
    setattr(dataset, _DEALT, True)
    _let_epochs_differ()
    return remembered(dataset, "batches")


@functools.cache
def _let_epochs_differ() -> None:
    """Makes `fit` read on in an epoch that has more steps than the first."""
    hooks.subscribe(
        events.ITERATOR_MADE,
        _made,
        ring=Ring.JOB,
        purpose="ranks that are left train on more batches",
    )


def _made(iterator: Any) -> None:
    from keras_ring.keras.lanes.steps import steps

    batches = steps.BatchIterator(iterator)
    if hasattr(batches.dataset, _DEALT):
        batches.count_anew()
