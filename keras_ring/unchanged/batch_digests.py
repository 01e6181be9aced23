"""Checks that ranks have read the same data.

Each rank takes its part of what it reads, so all must read the same data in the
same order. Digests of one row of each batch are compared after the first batch
and at the end of each pass.

Ranks may augment the same data differently, for example by random operations
that run in parallel. So each tensor of a batch is compared by itself: if one
that varies from batch to batch, such as the targets, is equal on all ranks, the
order is the same.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import Dataset, Model, Operation, Structure, Tensor
from keras_ring.core import arrays, reduce_ops
from keras_ring.core.notices import say
from keras_ring.core.objects import broadcast_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import ConsistencyError
from keras_ring.tensorflow import xla

_SLOTS = 1024  # number of last batches whose digests are kept
_DIGEST_BYTES = 8
_FACTOR = 6364136223846793005  # of Knuth's MMIX; odd, so that nothing is lost
_MODULUS = 2**64
_TENSORS = 16  # tensors of a batch with own digests; others share these
_NUMBERS = 64  # numbers of a row that are used if XLA compiles a step
_OF_MODEL = "_keras_ring_digests"


class Digests(Protocol):
    """Digests of the batches that were read."""

    def require_same(self, name: str) -> None:
        """Compares the batches so far between ranks. All must call this.

        Args:
            name: String, the name of the exchange.

        Raises:
            ConsistencyError: On all ranks, if the batches differ.
        """


class StepDigests:
    """Digests of the batches that a model is trained on, taken in its steps.

    All ranks have made the same number of steps when they compare, so the
    digests of all batches are folded into one number for each tensor.
    """

    def __init__(self) -> None:
        # Made before a step is traced, which must not make variables later.
        # There is one for steps that XLA compiles, whose variables must be on
        # its device, and one for others.
        self._states = {True: _State(None), False: _State("CPU")}
        self._num_digests = 0

    def note(self, batch: Structure) -> Operation:
        """Returns the operation that records the digests of a batch."""
        digests: list[Tensor] = [tf.constant(0, tf.int64)] * _TENSORS
        found = _digests(batch)
        self._num_digests = max(self._num_digests, min(len(found), _TENSORS))
        for index, digest in enumerate(found):
            digests[index % _TENSORS] += digest
        return self._states[xla.is_tracing()].note(tf.stack(digests))

    def require_same(self, name: str) -> None:
        """Compares the batches, see `Digests`."""
        for state in self._states.values():
            content, varies, count = state.content(self._num_digests)
            if count:
                _require_same(content, varies, count, name)


class _State:
    """The folded digests of batches, on one device."""

    def __init__(self, device: str | None) -> None:
        zeros = np.zeros([_TENSORS], np.int64)
        with tf.init_scope(), tf.device(device):
            self._folded = tf.Variable(zeros, trainable=False)
            self._last = tf.Variable(zeros, trainable=False)
            self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._compared = zeros, 0

    def note(self, digests: Tensor) -> Operation:
        folded = self._folded * tf.constant(_FACTOR, tf.int64) + digests
        return tf.group(
            self._folded.assign(folded),
            self._last.assign(digests),
            self._count.assign_add(1),
        )

    def content(
        self, num_digests: int
    ) -> tuple[bytes, npt.NDArray[np.bool_], int]:
        """Returns the digests, and begins a new comparison.

        Args:
            num_digests: Integer, the number of digests that are in use.

        Returns:
            A tuple: the folded digests as bytes; an array of booleans, whether
            each digest has varied since the last call; and the number of
            batches since then.
        """
        folded, last = self._folded.numpy(), self._last.numpy()
        before, count_before = self._compared
        count = int(self._count) - count_before
        self._compared = folded, int(self._count)
        # The folded value, if every batch had the last digest.
        scale = pow(_FACTOR, count, _MODULUS)
        series = sum(pow(_FACTOR, i, _MODULUS) for i in range(count))
        same = [
            (int(b) * scale + int(d) * series - int(f)) % _MODULUS == 0
            for b, d, f in zip(before, last, folded, strict=True)
        ]
        # A single batch cannot show variation, and counts as varying.
        varies = ~np.array(same[:num_digests]) | (count == 1)
        return folded[:num_digests].tobytes(), varies, count


def of_steps(model: Model) -> StepDigests:
    """Returns the `StepDigests` of a model, which are made if needed."""
    found = vars(model).get(_OF_MODEL)
    if found is None:
        found = StepDigests()
        # Bypasses the model's own `__setattr__`, which tracks attributes.
        object.__setattr__(model, _OF_MODEL, found)
    digests: StepDigests = found
    return digests


class ReadDigests:
    """Digests of the batches that a dataset yields, taken when they are read.

    Args:
        dataset: A `tf.data.Dataset` of batches.
    """

    def __init__(self, dataset: Dataset) -> None:
        leaves = [
            spec
            for spec in tf.nest.flatten(dataset.element_spec)
            if isinstance(spec, tf.TensorSpec | tf.RaggedTensorSpec)
        ]
        with tf.init_scope(), tf.device("CPU"):
            self._slots = tf.Variable(
                tf.zeros([_SLOTS, max(len(leaves), 1)], tf.int64),
                trainable=False,
            )
            self._count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def note(self, index: Tensor, batch: Structure) -> Operation:
        """Returns the operation that records the digests of a batch.

        Args:
            index: Integer scalar, the number of batches before it.
            batch: The batch.
        """
        row = tf.stack(_digests(batch))
        slot = self._slots[index % _SLOTS]
        with tf.control_dependencies([slot.assign(row).op]):
            return self._count.assign(index + 1).op

    def require_same(self, name: str) -> None:
        """Compares the batches that all ranks have read, see `Digests`.

        Ranks may have read different numbers of batches.
        """
        count = int(
            arrays.allreduce(
                np.array([int(self._count)], np.int64),
                reduce_ops.Min,
                name=f"{name}/count",
                process_set=global_process_set,
            )[0]
        )
        if not count:
            return
        # Ranks may have read ahead and overwritten the oldest digests.
        indexes = np.arange(max(0, count - _SLOTS // 2), count) % _SLOTS
        slots = self._slots.numpy()[indexes]
        content = b"".join(
            hashlib.blake2b(
                np.ascontiguousarray(column).tobytes(),
                digest_size=_DIGEST_BYTES,
            ).digest()
            for column in slots.T
        )
        varies = (slots != slots[0]).any(axis=0) | (len(slots) == 1)
        _require_same(content, varies, count, name)


def of_rank_0(batch: Structure) -> Structure:
    """Returns the batch of rank 0, which other ranks may have augmented.

    Args:
        batch: The batch that this rank has read.
    """
    leaves = [
        np.asarray(leaf) if isinstance(leaf, tf.Tensor | np.ndarray) else None
        for leaf in tf.nest.flatten(batch)
    ]
    found = [
        leaf if received is None else tf.convert_to_tensor(received)
        for leaf, received in zip(
            tf.nest.flatten(batch),
            broadcast_object(leaves, name="auto/batch_of_rank_0"),
            strict=True,
        )
    ]
    return tf.nest.pack_sequence_as(batch, found)


def _require_same(
    content: bytes, varies: npt.NDArray[np.bool_], count: int, name: str
) -> None:
    """Raises an error on all ranks if their digests differ.

    Args:
        content: Bytes, the digests of all tensors.
        varies: Array of booleans, which digests vary on this rank.
        count: Integer, the number of batches.
        name: String, the name of the exchange.
    """
    rows = arrays.gather_digests(content, name, global_process_set)
    by_rank = rows.reshape(len(rows), -1, _DIGEST_BYTES)
    same = (by_rank == by_rank[0]).all(axis=(0, 2))
    if same.all():
        return
    # A digest that is the same on all ranks varies on all or on none.
    if (same & varies).any():
        say(
            "data: the ranks read the same batches, and change them in "
            "different ways (random operations, perhaps in parallel)"
        )
        return
    raise ConsistencyError(
        f"Of {count} batches the ranks have not read the same, and each takes "
        "its part of them, so some examples would be used twice and some "
        "never. Something that makes the data is another on each rank: a "
        "generator without a seed (`numpy.random.default_rng()`, "
        "`random.Random()`), the time, the order of a set, a file that each "
        "rank has of its own, or a `tf.data` option `deterministic=False`. "
        "Give it a seed, or an order."
    )


def _digests(batch: Structure) -> list[Tensor]:
    """Returns an integer digest of the first row of each tensor."""
    found = [
        _digest(tf.convert_to_tensor(getattr(leaf, "flat_values", leaf)))
        for leaf in tf.nest.flatten(batch)
        if isinstance(leaf, tf.RaggedTensor | tf.Tensor | np.ndarray)
    ]
    return found or [tf.constant(0, tf.int64)]


def _digest(values: Tensor) -> Tensor:
    if xla.is_tracing():
        return _compiled_digest(values)
    # On the device where the batch was read.
    with tf.device("CPU"):
        row = tf.reshape(values if values.shape.rank == 0 else values[:1], [-1])
        if row.dtype == tf.string:
            return tf.strings.to_hash_bucket_fast(
                tf.strings.reduce_join(row), 2**62
            )
        # An empty batch has a digest, too.
        digest = tf.fingerprint(row[tf.newaxis])
        return tf.bitcast(tf.reshape(digest, [8]), tf.int64)


def _compiled_digest(values: Tensor) -> Tensor:
    """Returns a digest of some numbers of the first row, which XLA compiles."""
    row = tf.reshape(values if values.shape.rank == 0 else values[:1], [-1])
    row = row[:_NUMBERS]
    if row.dtype.is_floating:
        bits = {2: tf.int16, 4: tf.int32, 8: tf.int64}[row.dtype.size]
        row = tf.bitcast(row, bits)
    row = tf.cast(row, tf.int64)
    weights = 2 * tf.range(tf.size(row, tf.int64), dtype=tf.int64) + _FACTOR
    return tf.reduce_sum(row * weights)
