"""Trainings that ranks leave and join, in the way of Horovod's elastic."""

from keras_ring.keras.elastic.callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from keras_ring.keras.elastic.running import run
from keras_ring.keras.elastic.states import (
    HostsUpdatedInterrupt,
    KerasState,
    ObjectState,
    State,
    TensorFlowKerasState,
    TensorFlowState,
)

__all__ = [
    "CommitStateCallback",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
