"""Callbacks for training a Keras model in a job of several ranks."""

from keras_ring.callbacks.broadcast import BroadcastGlobalVariablesCallback
from keras_ring.callbacks.learning_rate_schedule import (
    LearningRateScheduleCallback,
)
from keras_ring.callbacks.learning_rate_warmup import (
    LearningRateWarmupCallback,
)
from keras_ring.callbacks.metric_average import MetricAverageCallback

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
