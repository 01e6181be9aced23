"""Compares the first batch of a training between ranks, and adds up its size.

If the batch size was not divided by the number of ranks, the global batch is
that many times as large. If the data were not split, N ranks do the work of
one, and nothing looks wrong. The same holds if ranks split by `Dataset.shard`
what each has shuffled in its own way. So the first batch that a model is
trained on is read here, and then trained on unchanged. Its size, its digest and
a digest of what the data are made from are exchanged once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from keras_ring._typing import Dataset, Model, Structure
from keras_ring.core import arrays, topology
from keras_ring.core.generations import num_admissions
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
)
from keras_ring.keras.agreement import same_data
from keras_ring.keras.agreement.catching_up import exchanges_nothing
from keras_ring.keras.agreement.next_batch import on_next_call
from keras_ring.keras.agreement.rank_names import SHOWN, rank_list
from keras_ring.keras.backends import backend, tf_data
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.lanes import compat

# Attributes of a model: whether it is not compared, and the number of
# admissions at which it was.
_LEFT_OUT = "_keras_ring_batch_left_out"
_WATCHED = "_keras_ring_batch_watched"
_DIGEST_BYTES = 16
_UNKNOWN = bytes(_DIGEST_BYTES)
_SIZE_BYTES = 8


def watch(
    model: Model,
    process_set: ProcessSet = global_process_set,
    *,
    verbose: bool = False,
) -> None:
    """Makes the next batch of a model be compared between ranks.

    Ranks are compared once for each model, and the lowest one warns if some
    have the same batch. All ranks must call this before a batch of training.
    Programs without eager execution are not compared, because no single
    function reads their batches.

    Args:
        model: A `keras.Model` in `fit`.
        process_set: The process set whose members train the model. Defaults to
            all ranks.
        verbose: Boolean, whether to print the size of the global batch.
    """
    if exchanges_nothing(process_set) or getattr(model, _LEFT_OUT, False):
        return
    # Ranks that have come in since it was compared have not compared it.
    if getattr(model, _WATCHED, None) == num_admissions():
        return
    if backend.is_graph_program():
        return
    object.__setattr__(model, _WATCHED, num_admissions())

    def compare_and_train(train: Run, iterator: Iterator[Structure]) -> Any:
        dataset = getattr(iterator, "_dataset", None)
        batches, iterator = backend.read_ahead(
            iterator, compat.steps_per_execution(model)
        )
        _compare(batches, dataset, process_set, verbose)
        return train(iterator)

    on_next_call(model, compare_and_train)


def leave_out(model: Model) -> None:
    """Excludes a model from the comparison of first batches."""
    object.__setattr__(model, _LEFT_OUT, True)


def _compare(
    batches: list[Structure],
    dataset: Dataset,
    process_set: ProcessSet,
    verbose: bool,
) -> None:
    digest = _digest(batches[:1])
    if digest is None:
        # The rank in place of a digest: there is nothing to compare.
        digest = topology.rank().to_bytes(_DIGEST_BYTES, "little")
    size = _size(batches[:1]).to_bytes(_SIZE_BYTES, "little")
    members = process_set.ranks
    parts, source = _split(dataset, len(members))
    rows = arrays.gather_digests(
        digest + source + size,
        "fit/first_batch",
        process_set,
    )
    if topology.rank() != members[0]:
        return
    digests, sources, sizes = np.split(
        rows, [_DIGEST_BYTES, 2 * _DIGEST_BYTES], axis=1
    )
    _warn_if_same(digests, members)
    _warn_if_split_differs(parts, sources)
    sizes = np.ascontiguousarray(sizes).view("<u8")
    if verbose and sizes.all():
        print(_batch_of_all(sizes.ravel().tolist()), flush=True)


def _split(
    dataset: Dataset, num_ranks: int
) -> tuple[list[same_data.Part], bytes]:
    """Returns the parts of what `Dataset.shard` splits, and their digest.

    Nothing is raised: a rank that raised alone would leave the others waiting.
    A dataset that cannot be inspected counts as none.
    """
    if not tf_data.is_dataset(dataset):
        return [], _UNKNOWN
    try:
        # TensorFlow is there, since it has made the dataset.
        from keras_ring.keras.agreement import datasets

        parts = datasets.parts_before_split(dataset, num_ranks)
        return parts, same_data.digest_of(parts)
    except Exception as error:
        logging.debug("keras_ring: no look into a dataset: %s", error)
        return [], _UNKNOWN


def _batch_of_all(sizes: list[int]) -> str:
    """Returns a line about the size of the global batch."""
    count = len(sizes)
    if len(set(sizes)) == 1:
        terms = f"{count} x {sizes[0]} = "
    else:
        terms = f"{' + '.join(map(str, sizes))} = " if count <= SHOWN else ""
    return f"keras_ring: {count} ranks, a global batch of {terms}{sum(sizes)}"


def _size(batches: list[Structure]) -> int:
    """Returns the number of rows of a batch, or 0 if it is not known."""
    for tensor in backend.flatten(batches):
        shape = getattr(tensor, "shape", None)
        # A shape of TensorFlow may be unknown.
        if shape is not None and _dimensions(shape):
            return int(shape[0] or 0)
    return 0


def _dimensions(shape: Any) -> int:
    """Returns the length of a shape, or 0 if it is not known."""
    # A shape of TensorFlow has no length then, and its rank is `None`.
    rank = getattr(shape, "rank", None) if shape else 0
    return len(shape) if shape and rank is None else int(rank or 0)


def _warn_if_same(digests: npt.NDArray[Any], members: list[int]) -> None:
    groups: dict[bytes, list[int]] = {}
    for member, digest in zip(members, digests, strict=True):
        groups.setdefault(digest.tobytes(), []).append(member)
    same = max(groups.values(), key=len)
    if len(same) == 1:
        return
    logging.warning(
        "keras_ring: %d of %d ranks got the same batch (ranks %s), so they do "
        "the work of one. Split the data with `kr.data.shard(...)` before "
        "`fit`. If ranks draw batches at random, let the seed depend on "
        "`kr.rank()`.",
        len(same),
        len(members),
        rank_list(same),
    )


def _warn_if_split_differs(
    parts: list[same_data.Part], digests: npt.NDArray[Any]
) -> None:
    """Warns if `Dataset.shard` splits data that differ between ranks."""
    why = [f"{part.what} ({part.text})" for part in parts if part.is_random]
    known = digests[digests.any(axis=1)]
    if not why and len(known) and not (known == known[0]).all():
        why = ["seeds, files or contents differ"]
    if why:
        logging.warning(
            "keras_ring: the ranks split a dataset by `Dataset.shard` that "
            "each of them has in another order: %s. Some elements are used "
            "twice and some never. Pass seed= to what shuffles before, the "
            "same on all ranks, or shuffle after the split, as "
            "`kr.data.shard(dataset, shuffle=...)` does.",
            why[0],
        )


def _digest(batches: list[Structure]) -> bytes | None:
    """Returns a digest of batches, or `None` if they are all constants."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    is_constant = True
    for array in backend.arrays_in(batches):
        flat = array.reshape(-1)
        if flat.dtype.kind == "O":
            content = repr(flat.tolist()).encode()
        else:
            content = np.ascontiguousarray(flat).view(np.uint8).tobytes()
        digest.update(content)
        is_constant &= bool(not flat.size or (flat == flat[0]).all())
    return None if is_constant else digest.digest()
