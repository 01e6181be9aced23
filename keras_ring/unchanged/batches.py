"""The part of the data that a rank has.

Each rank reads the batches that one process would read, and a step of training
takes this rank's part of the rows of each (`whole_batch.PartStep`). In an
evaluation, each rank reads every n-th batch, another one than the others.
"""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Dataset, Structure, Tensor
from keras_ring.core import topology
from keras_ring.core.notices import count, say
from keras_ring.errors import AutoError
from keras_ring.keras.agreement.same_data import require_same_arrays
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.batch_source import BatchIterator, Source
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.model import metric_state
from keras_ring.tensorflow.autograph import do_not_convert
from keras_ring.tensorflow.batch_rows import num_rows, rows_between
from keras_ring.unchanged import (
    batch_digests,
    data_passes,
    script,
    small_batches,
    stateful_layers,
)
from keras_ring.unchanged.data_passes import Pass
from keras_ring.unchanged.settings import AutoSettings

_PURPOSE = "ranks have parts of the data of one process"


class _Read:
    """The data that one iterator over batches reads on this rank.

    Args:
        is_split: Boolean, whether this rank uses only a part of the data.
        digests: Digests of the data that ranks must read alike, or `None` if
            they are not to be compared.
        is_own: Boolean, whether the rank trains on batches of its own.
    """

    def __init__(
        self,
        *,
        is_split: bool,
        digests: batch_digests.Digests | None = None,
        is_own: bool = False,
    ) -> None:
        self.is_split = is_split
        self.digests = digests
        self.is_own = is_own


def install(settings: AutoSettings) -> None:
    """Changes the iterator of Keras. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.
    """
    hooks.subscribe(
        events.ITERATOR_MADE,
        lambda iterator: _made(settings, steps.BatchIterator(iterator)),
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.PASS_BEGINS, _begun, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )


def _made(settings: AutoSettings, iterator: BatchIterator) -> _Read | None:
    running = data_passes.current()
    if running is None:
        return None
    if not running.is_training or running.has_data:
        return _some_batches(iterator, running)
    running.has_data = True
    if settings.per_rank:
        read = _batches_of_ranks(iterator, running)
    else:
        read = _whole_batches(iterator, running)
    # Keras 2 begins the pass after the callbacks, which need this earlier.
    _begun(read)
    return read


def _begun(read: _Read | None) -> None:
    """Stores what is read in the current pass, which begins."""
    running = data_passes.current()
    if running is None or read is None:
        return
    running.is_split = read.is_split
    running.digests = read.digests
    running.has_own_batches = read.is_own


def _whole_batches(iterator: BatchIterator, running: Pass) -> _Read:
    """Keeps the iterator as it is: the step takes this rank's rows."""
    small_batches.refuse(running.model, iterator)
    running.reads = _parts_text(iterator.source())
    say(f"fit: {running.reads}")
    return _Read(is_split=True, digests=batch_digests.of_steps(running.model))


def _batches_of_ranks(iterator: BatchIterator, running: Pass) -> _Read:
    """Makes the iterator read every n-th batch, for training.

    All ranks have the same number of batches: if the last ones are missing, a
    rank gets a batch without rows.
    """
    size, rank = topology.size(), topology.rank()
    source = iterator.source()
    total = iterator.num_batches_of_data
    if total is None and source.num_batches is None:
        raise AutoError(
            f"{script.line()} trains on a {source.kind} whose number of "
            "batches is not known, so ranks that have every "
            f"{size}th of them could have different numbers. Set "
            "`steps_per_epoch`, or leave `--batch per-rank` away."
        )
    whole = iterator.dataset
    digests = batch_digests.ReadDigests(whole)
    dataset = _every_nth(_noted(whole, digests), size, rank, total)
    iterator.dataset = _keeping_options(whole, dataset)
    iterator.divide_num_batches(size)
    rows = f" of {source.batch_size}" if source.batch_size else ""
    running.reads = (
        f"{_source_text(source)}; each rank has batches{rows} of its "
        f"own, so a step is on {size} of them"
    )
    say(f"fit: {running.reads}")
    return _Read(is_split=True, digests=digests, is_own=True)


def _every_nth(
    whole: Dataset, size: int, rank: int, total: int | None
) -> Dataset:
    """Returns every n-th batch, the same number per epoch on all ranks.

    Args:
        whole: The batches, of one epoch, or with Keras 2 of all epochs.
        size: Integer, the number of ranks.
        rank: Integer, the rank.
        total: Integer, the number of batches of an epoch, or `None` if all
            batches are of one.
    """
    if total is None or total % size == 0:
        return whole.shard(size, rank)
    is_short = rank >= total % size

    @do_not_convert
    def is_of_rank(index: Tensor, *_: Structure) -> Tensor:
        index_in_epoch = index % total
        return (index_in_epoch % size == rank) | (
            is_short & (index_in_epoch == total - 1)
        )

    @do_not_convert
    def of_rank(index: Tensor, *element: Structure) -> Structure:
        batch = element[0] if len(element) == 1 else element
        rows = tf.cast(num_rows(batch), tf.int64)
        is_own = index % total % size == rank
        end = tf.where(is_own, rows, tf.zeros_like(rows))
        return tf.nest.map_structure(
            lambda leaf: rows_between(leaf, 0, end), batch
        )

    return whole.enumerate().filter(is_of_rank).map(of_rank)


def _some_batches(iterator: BatchIterator, running: Pass) -> _Read:
    """Makes the iterator read every n-th batch if that is possible.

    It is not if there are fewer batches than ranks or their number is not
    known, nor where the results would differ from those of one process.
    """
    size, rank = topology.size(), topology.rank()
    source = iterator.source()
    total = iterator.num_executed_batches()
    if (
        total is None
        or total < size
        or source.kind == "generator"
        or running.is_watched
        or steps.is_own_test_step(running.model)
        or not metric_state.are_sums(running.model)
        or stateful_layers.stateful_layer(running.model)
    ):
        return _Read(is_split=False)
    digests = None
    dataset = iterator.dataset
    if source.arrays:
        require_same_arrays(source.arrays)
    else:
        digests = batch_digests.ReadDigests(dataset)
        dataset = _noted(dataset, digests)
    dataset = dataset.take(total).shard(size, rank)
    iterator.dataset = _keeping_options(iterator.dataset, dataset)
    iterator.set_num_batches(len(range(rank, total, size)))
    return _Read(is_split=True, digests=digests)


def _noted(dataset: Dataset, digests: batch_digests.ReadDigests) -> Dataset:
    """Returns a dataset that records digests of its batches."""

    @do_not_convert
    def note(index: Tensor, *element: Structure) -> Structure:
        batch = element[0] if len(element) == 1 else element
        with tf.control_dependencies([digests.note(index, batch)]):
            return tf.nest.map_structure(
                tf.identity, batch, expand_composites=True
            )

    return dataset.enumerate().map(note)


def _keeping_options(before: Dataset, after: Dataset) -> Dataset:
    return after.with_options(before.options())


def _parts_text(source: Source) -> str:
    """Returns a text about the part of the data that a rank trains on."""
    size = topology.size()
    if source.batch_size is None:
        batch = "each batch is divided by rows"
    else:
        rows = source.batch_size
        low, rest = divmod(rows, size)
        parts = f"{size} x {low}" if not rest else f"{size} x {low} + {rest}"
        batch = f"batch {rows} = {parts}"
        if rows < size:
            batch += f", so {size - rows} ranks have nothing to do"
    return f"{_source_text(source)}; {batch}"


def _source_text(source: Source) -> str:
    if source.num_samples is not None:
        each = source.num_samples / topology.size()
        about = "" if each.is_integer() else "about "
        return f"{count(source.num_samples, 'sample')}, {about}{each:,.0f} each"
    if source.num_batches is not None:
        return f"{count(source.num_batches, 'batch')} of a {source.kind}"
    return f"a {source.kind}"
