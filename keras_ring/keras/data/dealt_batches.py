"""A `tf.data.Dataset` of the batches that are dealt out to a rank.

It is the last stage of the input pipeline: that it is asked for a batch tells
that the step on the one before has ended. So it can tell from the steps of the
job what has been trained on, and deals out again what has not.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring._typing import Dataset, Structure
from keras_ring.core import generations, notices, topology
from keras_ring.core.objects import broadcast_object
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


@dataclasses.dataclass(frozen=True)
class _Position:
    """A place in dealt batches, between two rounds."""

    epoch: int
    is_paused: bool
    round: int
    free: Sequence[int]


class _Dealer:
    """Deals batches out to this rank, epoch by epoch."""

    def __init__(self, batches: Batches, *, pad: bool) -> None:
        self._batches = batches
        self._pad = pad
        self._key = _dealers.add(self)
        self._epoch = 0
        # Whether the next loop goes on with the epoch of the last one.
        self._is_paused = False
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
        self._is_paused = False

    def pause(self) -> None:
        """Ends a loop that was left; the next one goes on from there."""
        if self._loop is not None:
            self._end_round()
            self._loop = None
            self._is_paused = True

    @property
    def is_in_loop(self) -> bool:
        """True if a loop reads an epoch of it."""
        return self._loop is not None

    @property
    def is_at_end(self) -> bool:
        """True if nothing is left of the epoch that a loop is in.

        The program must be through with the step on the last batch.
        """
        if self._loop is None:
            return False
        self._end_round()
        return not self._leases.free

    def has_batches_for(self, num_waiting: int) -> bool:
        """Returns whether an epoch goes on for others who come in now.

        All ranks know the same after a step that they have made together.

        Args:
            num_waiting: Integer, the number of processes that are to come in.
        """
        if self._loop is None:
            return False
        self._end_round()
        left = len(self._leases.free)
        if self._pad:
            return left > 0
        # There must be a batch for each rank, and more may come in than that.
        ranks = len(self._leases.generation.members) + num_waiting
        return left >= 2 * ranks

    @property
    def position(self) -> _Position:
        """The place in the data, which is the same on all ranks.

        A rank that takes it over goes on from there in its next loop.
        """
        is_paused = self._is_paused
        if self._loop is not None:
            self._end_round()
            is_paused = True
        leases = self._leases
        return _Position(self._epoch, is_paused, leases.round, leases.free)

    def go_on(self, position: _Position) -> None:
        """Takes over the position of ranks that have let this one in."""
        self._epoch = position.epoch
        self._is_paused = position.is_paused
        member, present = _present(self._key)
        self._leases = Leases(member, present, pad=self._pad)
        self._steps = generations.steps()
        # A loop of this rank alone is over.
        self._loop = None
        order: Sequence[int] = ()
        if position.is_paused:
            order = self._batches.order(position.epoch - 1)
        self._leases.go_on(position.round, order, position.free)

    def epoch(self) -> Iterator[Structure]:
        """Yields the batches of this rank in the next epoch."""
        self._end_round()
        self._read_ahead = None
        self._loop = loop = object()
        goes_on, self._is_paused = self._is_paused, False
        is_any_left = False
        if goes_on:
            for batch in self._rest_of_epoch(loop):
                is_any_left = True
                yield batch
            self._batches.end()
        # A loop without any batch would be none.
        if not is_any_left:
            order = self._batches.order(self._epoch)
            self._epoch += 1
            self._leases.begin_epoch(order)
            yield from self._rest_of_epoch(loop)
            self._batches.end()
        self._loop = None

    def _rest_of_epoch(self, loop: object) -> Iterator[Structure]:
        while (lease := self._take()) != END:
            yield _without_lists(self._read(lease))
            if self._loop is not loop:
                raise RuntimeError(
                    "Two loops read one `kr.data.batches` at once, so it does "
                    "not know which batches were trained on. Make one for each."
                )
            self._end_round()
        self._end_round()

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


class _Dealers:
    """The dealers of this process.

    Ranks tell their data apart by numbers: all make the same, in one order.
    """

    def __init__(self) -> None:
        self._number = 0
        self._by_key: weakref.WeakValueDictionary[str, _Dealer] = (
            weakref.WeakValueDictionary()
        )

    def add(self, dealer: _Dealer) -> str:
        """Adds one; returns its key."""
        key = f"batches/{self._number}"
        self._number += 1
        self._by_key[key] = dealer
        return key

    def pause(self) -> None:
        """Pauses all."""
        for dealer in list(self._by_key.values()):
            dealer.pause()

    def is_any_at_end(self) -> bool:
        """Returns whether one is."""
        return any([each.is_at_end for each in list(self._by_key.values())])

    def is_any_in_loop(self) -> bool:
        """Returns whether one is."""
        return any(each.is_in_loop for each in list(self._by_key.values()))

    def positions(self) -> tuple[int, dict[str, _Position]]:
        """Returns the number of dealers ever, and the positions of all."""
        positions = {key: each.position for key, each in self._by_key.items()}
        return self._number, positions

    def go_on(self, number: int, positions: Mapping[str, _Position]) -> None:
        """Takes over the result of `positions` from another rank."""
        self._number = number
        for key, dealer in list(self._by_key.items()):
            if key in positions:
                dealer.go_on(positions[key])


_dealers = _Dealers()


def pause() -> None:
    """Ends the loops over dealt batches that the program has left.

    The next loop over the same data goes on from there. All ranks must call
    this after the same step.
    """
    _dealers.pause()


def is_any_at_end() -> bool:
    """Returns whether nothing is left of an epoch that a loop is in.

    All ranks know the same after a step that they have made together.
    """
    return _dealers.is_any_at_end()


def is_any_in_loop() -> bool:
    """Returns whether any loop over dealt batches goes on."""
    return _dealers.is_any_in_loop()


def are_dealt(data: Any) -> bool:
    """Returns whether an object is a result of `dealt`."""
    return hasattr(data, _DEALT)


def are_left_for(num_waiting: int, data: Dataset) -> bool:
    """Returns whether a loop over `data` goes on for others who come in now.

    Args:
        num_waiting: Integer, the number of processes that are to come in.
        data: Result of `dealt`.
    """
    dealer: _Dealer = getattr(data, _DEALT)
    return dealer.has_batches_for(num_waiting)


def share_positions(*, has_come_in: bool) -> None:
    """Gives ranks that have come in the positions of the others.

    All ranks must call this.

    Args:
        has_come_in: Boolean, whether this rank is one of them.
    """
    number, positions = broadcast_object(
        _dealers.positions(), 0, name="positions of batches"
    )
    if has_come_in:
        _dealers.go_on(number, positions)


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
    # There is nothing to tune. The thread that would do so may miss that its
    # iterator is removed, who then waits for it for up to a minute.
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    setattr(dataset, _DEALT, dealer)
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
    if are_dealt(batches.dataset):
        batches.count_anew()
