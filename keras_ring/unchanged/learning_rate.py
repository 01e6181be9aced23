"""The learning rate for a batch that is larger by the number of ranks."""

from __future__ import annotations

import math

from keras_ring._typing import Callback, Model
from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.errors import AutoError
from keras_ring.keras.callbacks.learning_rate_warmup import (
    LearningRateWarmupCallback,
)
from keras_ring.keras.lanes import compat
from keras_ring.protocol import auto_options
from keras_ring.unchanged.settings import AutoSettings

_SCALED = "_keras_ring_learning_rate_scaled"


def scaled(model: Model, settings: AutoSettings) -> list[Callback]:
    """Scales the learning rate of a model once.

    Args:
        model: A `keras.Model`.
        settings: The `AutoSettings` of the program.

    Returns:
        A list of callbacks that warm the learning rate up, perhaps empty.

    Raises:
        AutoError: If the learning rate is a schedule.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or hasattr(optimizer, _SCALED):
        return []
    factor = {
        auto_options.KEEP: 1.0,
        auto_options.LINEAR: float(topology.size()),
        auto_options.SQRT: math.sqrt(topology.size()),
    }[settings.learning_rate]
    if factor == 1.0 and not settings.warmup_epochs:
        return []
    if not compat.has_settable_learning_rate(optimizer):
        raise AutoError(
            f"The learning rate of optimizer {optimizer.name!r} is a schedule, "
            "which `--scale-learning-rate` and `--warmup-epochs` do not "
            "change. Scale it in the program: `kr.schedules.Warmup(schedule, "
            "warmup_steps)` warms up."
        )
    # Bypasses the optimizer's own `__setattr__`, which tracks attributes.
    object.__setattr__(optimizer, _SCALED, True)
    before = compat.learning_rate(optimizer)
    rate = before * factor
    compat.set_learning_rate(optimizer, rate)
    text = f"learning rate of {optimizer.name!r}: {before:g} -> {rate:g}"
    if not settings.warmup_epochs:
        say(text)
        return []
    say(f"{text}, reached in {settings.warmup_epochs} epochs")
    return [LearningRateWarmupCallback(rate, settings.warmup_epochs)]
