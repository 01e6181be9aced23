"""Callbacks for training a Keras model in a job of several ranks."""

from keras_ring.keras.callbacks.backup_and_restore import BackupAndRestore
from keras_ring.keras.callbacks.broadcast import (
    BroadcastGlobalVariablesCallback,
)
from keras_ring.keras.callbacks.consistency_check import ConsistencyCheck
from keras_ring.keras.callbacks.every_rank import EveryRank
from keras_ring.keras.callbacks.input_pipeline import InputPipeline
from keras_ring.keras.callbacks.learning_rate_schedule import (
    LearningRateScheduleCallback,
)
from keras_ring.keras.callbacks.learning_rate_warmup import (
    LearningRateWarmupCallback,
)
from keras_ring.keras.callbacks.metric_average import MetricAverageCallback
from keras_ring.keras.callbacks.model_checkpoint import ModelCheckpoint
from keras_ring.keras.callbacks.progress import Progress
from keras_ring.keras.callbacks.rank_zero_only import RankZeroOnly

__all__ = [
    "BackupAndRestore",
    "BroadcastGlobalVariablesCallback",
    "ConsistencyCheck",
    "EveryRank",
    "InputPipeline",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "ModelCheckpoint",
    "Progress",
    "RankZeroOnly",
]
