"""Callbacks for training a Keras model in a job of several ranks."""

from keras_ring.keras.callbacks import (
    BackupAndRestore,
    BroadcastGlobalVariablesCallback,
    ConsistencyCheck,
    EveryRank,
    InputPipeline,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
    ModelCheckpoint,
    Progress,
    RankZeroOnly,
)

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
