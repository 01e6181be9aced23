"""Saves the state of training, and restores it."""

from keras_ring.keras.checkpoint import restore, save, wait

__all__ = ["restore", "save", "wait"]
