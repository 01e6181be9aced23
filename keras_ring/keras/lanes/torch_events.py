"""The functions of Keras on PyTorch that events are bound to."""

from __future__ import annotations

from keras_ring.keras.lanes import events
from keras_ring.keras.lanes.binding import Bound, Table

TABLE: Table = {
    events.BATCHES_READ: (
        Bound("keras.src.trainers.epoch_iterator:EpochIterator.__next__"),
    ),
}
