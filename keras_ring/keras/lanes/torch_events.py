"""The functions of Keras on PyTorch that events are bound to."""

from __future__ import annotations

from keras_ring.keras.lanes import events
from keras_ring.keras.lanes.binding import Bound, Table

TABLE: Table = {
    events.OPTIMIZER_MADE: (Bound("torch.optim:Optimizer.__init__"),),
    events.STEP_RUN: (Bound("keras:Model.train_step"),),
    # A step of Keras calls the first, and steps of programs the second.
    events.LOSS_COMPUTED: (
        Bound("keras:Model._compute_loss"),
        Bound("keras:Model.compute_loss"),
    ),
    events.BATCHES_READ: (
        Bound("keras.src.trainers.epoch_iterator:EpochIterator.__next__"),
    ),
}
