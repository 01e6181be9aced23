"""Jobs on a Ray cluster: `keras_ring.ray.run`.

run      runs a function on several ranks, each an actor of Ray
workers  the placement, the start and the results of the actors
rank     the part that runs in an actor
"""

from keras_ring.launch.ray.run import run

__all__ = ["run"]
