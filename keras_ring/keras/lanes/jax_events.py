"""The functions of Keras on JAX that events are bound to."""

from __future__ import annotations

from keras_ring.keras.lanes import events
from keras_ring.keras.lanes.binding import Bound, Table

TABLE: Table = {
    events.STEP_RUN: (Bound("keras:Model.train_step"),),
    # A step of Keras calls the first, and steps of programs the second.
    events.LOSS_COMPUTED: (
        Bound("keras:Model._compute_loss"),
        Bound("keras:Model.compute_loss"),
    ),
    events.STEP_MADE: (
        Bound("keras.src.backend.jax.trainer:JAXTrainer._make_function"),
    ),
    events.BATCHES_MADE: (
        Bound("keras.src.backend.jax.trainer:JAXEpochIterator._get_iterator"),
    ),
    events.MODEL_BUILT: (
        Bound("keras.src.backend.jax.trainer:JAXTrainer._symbolic_build"),
    ),
    events.GRAPH_RUN: (Bound("keras_ring.keras.backends.jax_steps:Step.run"),),
    events.BATCHES_READ: (
        Bound("keras_ring.keras.backends.jax_steps:Batches.__next__"),
    ),
}
