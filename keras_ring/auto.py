"""`import keras_ring.auto`: trains an unchanged program on all ranks.

The import alone is enough. As the first line of a program that is written for
one process, it has the effect of `keras-ring run --auto`. Use it if another
program starts the ranks (mpirun, srun, torchrun, Kubernetes), in notebooks, and
with a Python that ignores `PYTHONPATH`.
"""

from keras_ring.unchanged import starting

starting.start()
