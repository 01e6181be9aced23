"""Layers that keep what they have learned outside of their weights.

Layers with `adapt` do. Some compute what they use from weights, in
`finalize_state`, and have to do it again when the weights have been assigned:
`Normalization`. Others have no weights for it: the vocabularies of
`TextVectorization` and `StringLookup`, the boundaries of `Discretization`.
These can only be compared.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._ops.execution import is_graph_program
from keras_ring._runtime.process_sets import ProcessSet, is_alone
from keras_ring._typing import Layer, Model
from keras_ring.core.objects import allgather_object
from keras_ring.errors import ConsistencyError

# What such layers have, beside a vocabulary. Of `Normalization`, what it was
# given instead of being adapted.
_ATTRIBUTES = ("bin_boundaries", "input_mean", "input_variance", "idf_weights")


def finalize(model: Model, process_set: ProcessSet) -> None:
    """Has layers compute anew what they make of their weights.

    Functions that were traced hold what was computed before as constants. So
    they are traced anew, on all ranks, if something has changed on one.

    Args:
        model: A `keras.Model`, whose weights are the same on all ranks.
        process_set: Whose ranks have the model.
    """
    layers = [
        layer
        for layer in model._flatten_layers()
        if hasattr(layer, "finalize_state") and layer.weights
    ]
    # Without eager execution these are tensors that read the weights.
    if not layers or is_graph_program():
        return
    changed = False
    with tf.init_scope():
        for layer in layers:
            before = _tensors(layer)
            layer.finalize_state()
            changed = changed or not _equal(before, _tensors(layer))
    if any(allgather_object(changed, "finalize", process_set)):
        for kind in ("train", "test", "predict"):
            if getattr(model, f"{kind}_function", None) is not None:
                getattr(model, f"make_{kind}_function")(force=True)


def require_same(model: Model, process_set: ProcessSet) -> None:
    """Raises an error on all ranks if what layers have learned differs.

    Args:
        model: A `keras.Model`.
        process_set: Whose ranks compare.

    Raises:
        ConsistencyError: If it differs; it names the layer and the ranks.
    """
    if is_alone(process_set):
        return
    layers = [
        layer for layer in model._flatten_layers() if hasattr(layer, "adapt")
    ]
    learned = [_learned(layer) for layer in layers]
    by_rank = allgather_object(
        [hashlib.sha256(repr(each).encode()).hexdigest() for each in learned],
        name="adapted_layers",
        process_set=process_set,
    )
    for position, layer in enumerate(layers):
        groups: dict[str | None, list[int]] = {}
        for rank, digests in zip(process_set.ranks, by_rank, strict=True):
            digest = digests[position] if position < len(digests) else None
            groups.setdefault(digest, []).append(rank)
        if len(groups) == 1:
            continue
        ranks = " and ".join(f"ranks {each}" for each in groups.values())
        raise ConsistencyError(
            f"Layer {layer.name!r} ({type(layer).__name__}) has not learned "
            f"the same on all ranks: {ranks} differ in "
            f"{' or '.join(name for name, _ in learned[position])}, so the "
            "same example means something else on each of them. Call "
            "`adapt` on all of the data, before `kr.data.shard`; or adapt on "
            "one rank and share what it has learned: "
            "`layer.set_vocabulary(kr.broadcast_object(vocabulary))`."
        )


def _learned(layer: Layer) -> list[tuple[str, object]]:
    """Returns what a layer uses beside its weights, by what it is called."""
    found: list[tuple[str, object]] = []
    if hasattr(layer, "get_vocabulary"):
        found.append(("vocabulary", layer.get_vocabulary()))
    for name in _ATTRIBUTES:
        value = getattr(layer, name, None)
        if value is not None:
            found.append((name, np.asarray(value).tolist()))
    return found or [("nothing", None)]


def _tensors(layer: Layer) -> list[npt.NDArray[Any]]:
    """Returns the tensors that a layer has as attributes."""
    return [
        value.numpy()
        for value in vars(layer).values()
        if tf.is_tensor(value) and hasattr(value, "numpy")
    ]


def _equal(
    before: list[npt.NDArray[Any]], after: list[npt.NDArray[Any]]
) -> bool:
    return len(before) == len(after) and all(
        np.array_equal(a, b) for a, b in zip(before, after, strict=True)
    )
