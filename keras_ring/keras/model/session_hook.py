"""Starts all ranks of a TensorFlow 1 program from the same state."""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Operation
from keras_ring.core import topology
from keras_ring.errors import JobEndedError
from keras_ring.keras.model.global_variables import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives all ranks the variables of one rank when a session is created.

    Use it with `tf.compat.v1.train.MonitoredTrainingSession`, and with
    `tf.estimator` in TensorFlow up to 2.15. Only one rank reads a checkpoint;
    the others get its values, including the global step. Put this hook before
    hooks that read the global step, such as `StopAtStepHook`.

    Args:
        root_rank: Integer, the rank whose variables all ranks get.
        device: String, where the broadcast is placed. Defaults to `""`, which
            leaves it to TensorFlow.

    Example:
    ```python
    hooks = [
        kr.BroadcastGlobalVariablesHook(0),
        tf.compat.v1.train.StopAtStepHook(last_step=1000),
    ]
    with tf.compat.v1.train.MonitoredTrainingSession(
        checkpoint_dir="checkpoints" if kr.rank() == 0 else None, hooks=hooks
    ) as session:
        while not session.should_stop():
            session.run(train_op)
    ```
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._broadcast: Operation = None

    def begin(self) -> None:
        """Makes the operation, for a graph that may differ each time."""
        with tf.device(self.device or None):
            self._broadcast = broadcast_global_variables(self.root_rank)

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: object
    ) -> None:
        """Broadcasts the variables."""
        del coord
        if topology.stays_alone():
            return
        try:
            session.run(self._broadcast)
        except tf.errors.UnavailableError as error:
            # A `MonitoredSession` would treat this error as a reason to make
            # another session, again and again.
            raise JobEndedError(error.message) from error
