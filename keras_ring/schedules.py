"""Learning rate schedules."""

from keras_ring.keras.schedules import Warmup

__all__ = ["Warmup"]
