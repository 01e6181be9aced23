"""Takes over `keras.layers.BatchNormalization(synchronized=True)`.

Keras synchronizes between the replicas of a `tf.distribute.Strategy`, of which
a rank has one, so the layer would be that of its own rank without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

from keras_ring._keras import compat, keras
from keras_ring._model.sync_batch_normalization import moments_of_all_ranks
from keras_ring._runtime import topology
from keras_ring._runtime.process_sets import (
    ProcessSet,
    global_process_set,
    is_alone,
)
from keras_ring._training.trained_by import trained_by
from keras_ring._typing import Layer, Model, Tensor


def install() -> None:
    """Changes the class of Keras. Once is enough."""
    compat.hook_synchronized_moments(_moments)


def require_all_ranks(model: Model, process_set: ProcessSet) -> None:
    """Raises an error if such a layer is trained by some of the ranks.

    A layer does not know by whom its model is trained.

    Args:
        model: A `keras.Model`.
        process_set: Whose ranks share its state.

    Raises:
        ValueError: If not all ranks do, or train it.
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
    """Returns mean and variance over all ranks, `None` where there is one."""
    if not topology.is_initialized() or is_alone(global_process_set):
        return None
    return moments_of_all_ranks(layer.moving_mean, inputs, axes, mask)
