"""The functions of optimizers, of each family, that events are bound to.

An optimizer may be of another Keras than that of the program, and is bound by
the Keras that it is of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from keras_ring.keras.backends.which import (
    framework,
    keras,
    keras2_families,
)
from keras_ring.keras.lanes import events
from keras_ring.keras.lanes.binding import Bound, HookPoint, Table


def _updates_of_pairs() -> Iterator[HookPoint]:
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None:
        yield HookPoint(tensorflow.compat.v1.train.Optimizer, "apply_gradients")
    for keras2 in keras2_families():
        yield HookPoint(keras2.optimizers.Optimizer, "apply_gradients")
        yield HookPoint(keras2.optimizers.legacy.Optimizer, "apply_gradients")


def _scaled_updates() -> Iterator[HookPoint]:
    keras3: Any = sys.modules.get("keras")
    if getattr(keras3, "__version__", "").startswith("3."):
        yield HookPoint(keras3.optimizers.LossScaleOptimizer, "apply")


def _scaled_updates_of_values() -> Iterator[HookPoint]:
    # Of the other frameworks, an update changes variables.
    if framework() == "jax":
        yield HookPoint(keras.optimizers.LossScaleOptimizer, "stateless_apply")


def _scaled_updates_of_pairs() -> Iterator[HookPoint]:
    for keras2 in keras2_families():
        base = keras2.mixed_precision.LossScaleOptimizer
        for each in base.__subclasses__():
            if "apply_gradients" in vars(each):
                yield HookPoint(each, "apply_gradients")


TABLE: Table = {
    events.PAIRS_APPLIED: (
        Bound(
            "`apply_gradients` of each `Optimizer` of Keras 2 and of "
            "`tf.compat.v1.train`",
            find=_updates_of_pairs,
        ),
    ),
    events.SCALED_APPLIED: (
        Bound("Keras 3's `LossScaleOptimizer.apply`", find=_scaled_updates),
    ),
    events.SCALED_STATE_APPLIED: (
        Bound(
            "Keras 3's `LossScaleOptimizer.stateless_apply`, on JAX",
            find=_scaled_updates_of_values,
        ),
    ),
    events.SCALED_PAIRS_APPLIED: (
        Bound(
            "`apply_gradients` of each `LossScaleOptimizer` of Keras 2",
            find=_scaled_updates_of_pairs,
        ),
    ),
}
