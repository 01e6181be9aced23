"""Layers with learned state outside of their weights.

These are layers with `adapt`. `Normalization` computes tensors from its weights
in `finalize_state`, and has to do so again when the weights were assigned.
Other layers have no weights for their state, such as the vocabularies of
`TextVectorization` and `StringLookup` and the boundaries of `Discretization`.
Such state can only be compared.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Layer, Model
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import ProcessSet, is_alone
from keras_ring.errors import ConsistencyError
from keras_ring.keras.backends import backend

# Attributes of such layers, besides a vocabulary. Those of `Normalization` are
# arguments that replace `adapt`.
_ATTRIBUTES = ("bin_boundaries", "input_mean", "input_variance", "idf_weights")


def finalize(model: Model, process_set: ProcessSet) -> None:
    """Makes layers recompute the state that they derive from their weights.

    Traced functions hold the earlier state as constants. So they are traced
    again on all ranks if the state has changed on one rank.

    Args:
        model: A `keras.Model`, whose weights are the same on all ranks.
        process_set: A `kr.ProcessSet`, whose ranks have the model.
    """
    layers = [
        layer
        for layer in model._flatten_layers()
        if hasattr(layer, "finalize_state") and layer.weights
    ]
    # Without eager execution, the state consists of tensors that read weights.
    if not layers or backend.is_graph_program():
        return
    changed = False
    with backend.outside_of_traces():
        for layer in layers:
            before = _tensors(layer)
            layer.finalize_state()
            changed = changed or not _equal(before, _tensors(layer))
    if any(allgather_object(changed, "finalize", process_set)):
        for kind in ("train", "test", "predict"):
            if getattr(model, f"{kind}_function", None) is not None:
                getattr(model, f"make_{kind}_function")(force=True)


def require_same(model: Model, process_set: ProcessSet) -> None:
    """Raises an error on all ranks if the learned state of layers differs.

    Args:
        model: A `keras.Model`.
        process_set: A `kr.ProcessSet`, whose ranks compare.

    Raises:
        ConsistencyError: If it differs; the text names the layer and ranks.
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
    """Returns the learned state of a layer outside of its weights, by name."""
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
        backend.as_array(value)
        for value in vars(layer).values()
        if backend.is_tensor(value) and hasattr(value, "numpy")
    ]


def _equal(
    before: list[npt.NDArray[Any]], after: list[npt.NDArray[Any]]
) -> bool:
    return len(before) == len(after) and all(
        np.array_equal(a, b) for a, b in zip(before, after, strict=True)
    )
