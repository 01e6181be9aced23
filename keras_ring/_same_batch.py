"""Finds out that ranks train on the same batch: that nobody split the data.

N ranks would do the work of one, and nothing looks wrong. The first batch that
a model is trained on is read here, and trained on as it is; a digest of it is
exchanged, once.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from keras_ring import _arrays, basics
from keras_ring._compat import own
from keras_ring.process_sets import ProcessSet, global_process_set, is_alone

_WATCHED = "_keras_ring_batch_watched"
_DIGEST_BYTES = 16


def watch(model: Any, process_set: ProcessSet = global_process_set) -> None:
    """Warns, after the next batch of the model, if ranks have the same.

    Once for each model. All ranks must call this, before a batch of training.
    A program without eager execution is not watched: what it trains on is not
    read by one function.

    Args:
        model: A `keras.Model` in `fit`.
        process_set: Whose members train it. Defaults to all ranks.
    """
    if is_alone(process_set) or getattr(model, _WATCHED, False):
        return
    if _arrays.is_graph_program():
        return
    object.__setattr__(model, _WATCHED, True)
    train = model.train_function

    def compare_and_train(iterator: Any) -> Any:
        model.train_function = train
        if not isinstance(iterator, tf.data.Iterator):
            _warn_if_same([], process_set)
            return train(iterator)
        batches = []
        for _ in range(own.steps_per_execution(model)):
            batch = next(iterator, None)
            if batch is None:
                break
            batches.append(batch)
        _warn_if_same(batches, process_set)
        return train(_iterator_of(batches, iterator) if batches else iterator)

    model.train_function = compare_and_train


def _iterator_of(batches: list[Any], iterator: Any) -> Any:
    """Returns an iterator of batches, for what was traced for `iterator`."""

    def as_traced(batch: Any) -> Any:
        # Of the same structure, whatever the size of this batch.
        one = tf.data.experimental.to_variant(
            tf.data.Dataset.from_tensors(batch)
        )
        return tf.data.experimental.from_variant(one, iterator.element_spec)

    dataset = as_traced(batches[0])
    for batch in batches[1:]:
        dataset = dataset.concatenate(as_traced(batch))
    return iter(dataset)


def _warn_if_same(batches: list[Any], process_set: ProcessSet) -> None:
    digest = _digest(batches[:1])
    if digest is None:
        # Another one on each rank: nothing to compare.
        digest = basics.rank().to_bytes(_DIGEST_BYTES, "little")
    rows = _arrays.digest_rows(digest, "fit/first_batch", process_set)
    members = process_set.ranks
    groups: dict[bytes, list[int]] = {}
    for member, other in zip(members, rows, strict=True):
        groups.setdefault(other.tobytes(), []).append(member)
    same = max(groups.values(), key=len)
    if len(same) == 1 or basics.rank() != members[0]:
        return
    shown = ", ".join(str(rank) for rank in same[:8])
    shown += ", ..." if len(same) > 8 else ""
    logging.warning(
        "keras_ring: %d of %d ranks got the same batch (ranks %s), so they do "
        "the work of one. Split the data with `kr.data.shard(...)` before "
        "`fit`. If ranks draw batches at random, let the seed depend on "
        "`kr.rank()`.",
        len(same),
        len(members),
        shown,
    )


def _digest(batches: list[Any]) -> bytes | None:
    """Returns a digest of batches, or `None` if they are all constants."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    is_constant = True
    for tensor in tf.nest.flatten(batches, expand_composites=True):
        if not isinstance(tensor, tf.Tensor) or tensor.dtype in (
            tf.variant,
            tf.resource,
        ):
            continue
        array = tensor.numpy()
        flat = np.asarray(array).reshape(-1)
        if flat.dtype.kind == "O":
            content = repr(flat.tolist()).encode()
        else:
            content = np.ascontiguousarray(flat).view(np.uint8).tobytes()
        digest.update(content)
        is_constant &= bool(not flat.size or (flat == flat[0]).all())
    return None if is_constant else digest.digest()
