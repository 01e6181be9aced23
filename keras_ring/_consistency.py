"""Compares the weights of a model between ranks."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring import ops, process_sets
from keras_ring._compat import own
from keras_ring._local_sources import local_sources
from keras_ring._names import variable_path
from keras_ring.errors import ConsistencyError
from keras_ring.process_sets import ProcessSet, global_process_set
from keras_ring.sync_batch_normalization import SyncBatchNormalization

_DIGEST_BYTES = 16


def compared_weights(model: Any) -> list[Any]:
    """Returns the weights that must be the same on all ranks.

    Those that were made to be trained, frozen or not, but for those that were
    registered as local to each rank. Others are a layer's own:
    `keras.layers.BatchNormalization` keeps statistics of the batches of its
    rank.
    """
    weights: list[Any] = []
    for layer in model._flatten_layers():
        if isinstance(layer, SyncBatchNormalization):
            weights.extend(layer.weights)
        else:
            weights.extend(own.made_trainable(layer))
    local = local_sources(getattr(model, "optimizer", None))
    return list({id(w): w for w in weights if w not in local}.values())


def require_consistent(
    model: Any, when: str, process_set: ProcessSet = global_process_set
) -> None:
    """Raises an error on all ranks if their weights differ.

    Args:
        model: A `keras.Model`.
        when: String, for the error, such as "after epoch 3".
        process_set: Whose members train the model. Defaults to all ranks.

    Raises:
        ConsistencyError: If they differ; it names the first weight that does,
            and the ranks.
    """
    if process_sets.is_alone(process_set):
        return
    weights = compared_weights(model)
    digests = [_digest(weight) for weight in weights]
    together = hashlib.blake2b(b"".join(digests), digest_size=_DIGEST_BYTES)
    gathered = _gathered(together.digest(), "consistency", process_set)
    if (gathered == gathered[0]).all():
        return
    # The same branch on all ranks, because of what all have gathered.
    count = len(weights).to_bytes(8, "little")
    counts = _gathered(count, "consistency/count", process_set)
    if not (counts == counts[0]).all():
        numbers = counts.view("<u8").flatten().tolist()
        raise ConsistencyError(
            f"The ranks do not train the same model: {when}, ranks "
            f"{process_set.ranks} have {numbers} weights."
        )
    by_rank = _gathered(b"".join(digests), "consistency/weights", process_set)
    by_rank = by_rank.reshape(process_set.size(), len(weights), _DIGEST_BYTES)
    differs = (by_rank != by_rank[0]).any(axis=(0, 2))
    first = int(np.argmax(differs))
    raise ConsistencyError(
        f"The weights of the ranks differ: {when}, {int(differs.sum())} of "
        f"{len(weights)} do, the first being "
        f"{str(variable_path(weights[first]))!r}, of which "
        f"{_grouped(by_rank[:, first], process_set.ranks)}. Something changes "
        "weights on some ranks only: a callback, code under "
        "`if kr.rank() == 0`, an update inside `kr.allow_local_updates()`, or "
        "initial weights that were not shared ("
        "`kr.callbacks.BroadcastGlobalVariablesCallback`)."
    )


def _digest(weight: Any) -> bytes:
    array = np.ascontiguousarray(own.as_numpy(weight))
    content: Any = array.reshape(-1).view("uint8")
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _gathered(content: bytes, name: str, process_set: ProcessSet) -> Any:
    """Returns the bytes of all ranks, one row each."""
    local = tf.constant(np.frombuffer(content, np.uint8)[np.newaxis])
    return ops.allgather(local, name=name, process_set=process_set).numpy()


def _grouped(digests: Any, members: list[int]) -> str:
    groups: dict[bytes, list[str]] = {}
    for rank, digest in zip(members, digests, strict=True):
        groups.setdefault(digest.tobytes(), []).append(str(rank))
    return " and ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)} "
        f"ha{'ve' if len(ranks) > 1 else 's'} {which}"
        for ranks, which in zip(
            groups.values(),
            ["one value", *["another"] * len(groups)],
            strict=False,
        )
    )
