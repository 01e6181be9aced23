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

# As a package has, for `_former_paths`: each callback had a module in it.
__path__: list[str] = []

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
