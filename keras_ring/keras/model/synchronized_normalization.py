"""Implements `keras.layers.BatchNormalization(synchronized=True)` for jobs.

Keras synchronizes between the replicas of a `tf.distribute.Strategy`. A rank
has one replica, so without this the layer would silently use the batches of its
own rank only.
"""

from __future__ import annotations

from collections.abc import Sequence

from keras_ring._typing import Layer, Model, Tensor
from keras_ring.core import topology
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
    is_alone,
)
from keras_ring.keras.lanes import events, hooks, keras
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.model.sync_batch_normalization import moments_of_all_ranks
from keras_ring.keras.optimizer.trained_by import trained_by


def install() -> None:
    """Patches the class of Keras. A second call changes nothing."""
    hooks.subscribe(
        events.SYNCHRONIZED_MOMENTS,
        _moments,
        ring=Ring.JOB,
        purpose="`synchronized=True` is over all ranks",
    )


def require_all_ranks(model: Model, process_set: ProcessSet) -> None:
    """Raises an error if only some of the ranks train such a layer.

    A layer does not know which ranks train its model.

    Args:
        model: A `keras.Model`.
        process_set: A `kr.ProcessSet`, whose ranks share its state.

    Raises:
        ValueError: If only some ranks share the state of a model with such a
            layer, or train it.
    """
    for ranks in (process_set.ranks, trained_by(model).ranks):
        if len(ranks) == topology.size():
            continue
        for layer in model._flatten_layers():
            if type(layer) is keras.layers.BatchNormalization and getattr(
                layer, "synchronized", False
            ):
                raise ValueError(
                    f"Layer {layer.name!r} has `synchronized=True`, which is "
                    f"with all {topology.size()} ranks, and the model is "
                    f"trained by ranks {ranks}. Call "
                    "`kr.SyncBatchNormalization.convert(model, "
                    "process_set=...)` with their process set."
                )


def _moments(
    layer: Layer, inputs: Tensor, axes: Sequence[int], mask: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Returns mean and variance over all ranks, or `None` for one rank."""
    if not topology.is_initialized() or is_alone(global_process_set):
        return None
    return moments_of_all_ranks(layer.moving_mean, inputs, axes, mask)
