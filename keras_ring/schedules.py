"""Learning rate schedules."""

from keras_ring.keras.optimizer.schedules import Warmup

__all__ = ["Warmup"]
