"""Gives each rank its part of the data."""

from keras_ring.keras.data import shard

__all__ = ["shard"]
