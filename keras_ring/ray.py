"""Jobs on a Ray cluster."""

from keras_ring.launch.ray import run

__all__ = ["run"]
