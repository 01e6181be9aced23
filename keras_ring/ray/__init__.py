"""Jobs on a Ray cluster: `keras_ring.ray.run`.

run      a function on several ranks, each an actor of Ray
workers  the actors: placed by Ray, made ranks, asked how they end
rank     what runs in an actor
"""

from keras_ring.ray.run import run

__all__ = ["run"]
