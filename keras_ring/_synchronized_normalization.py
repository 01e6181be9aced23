"""Takes over `keras.layers.BatchNormalization(synchronized=True)`.

Keras synchronizes between the replicas of a `tf.distribute.Strategy`, of which
a rank has one, so the layer would be that of its own rank without a word.
"""

from __future__ import annotations

from typing import Any

from keras_ring import basics, process_sets
from keras_ring._compat import own
from keras_ring.process_sets import global_process_set
from keras_ring.sync_batch_normalization import moments_of_all_ranks


def install() -> None:
    """Changes the class of Keras. Once is enough."""
    own.hook_synchronized_moments(_moments)


def _moments(layer: Any, inputs: Any, axes: Any, mask: Any) -> Any:
    """Returns mean and variance over all ranks, `None` where there is one."""
    if not basics.is_initialized() or process_sets.is_alone(global_process_set):
        return None
    return moments_of_all_ranks(layer.moving_mean, inputs, axes, mask)
