"""`import keras_ring.auto`: has a program train on all ranks, unchanged.

The import alone does it. As the first line of a program of one process it does
what `keras-ring run --auto` does without it: for programs whose ranks something
else starts (mpirun, srun, torchrun, Kubernetes), for notebooks, and for a
Python that ignores `PYTHONPATH`.
"""

from keras_ring._auto import starting

starting.start()
