"""Gives each rank its part of the data."""

from keras_ring.keras.data import batches, shard

__all__ = ["batches", "shard"]
