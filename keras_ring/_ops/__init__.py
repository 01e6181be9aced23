"""Collectives as TensorFlow ops. Knows no Keras.

reduce_ops       how tensors are combined
compression      narrower number formats on the way between ranks
names            names under which ranks recognise each other's tensors
ordering         how TensorFlow orders stateful ops
xla              collectives in functions that XLA compiles
autograph        what AutoGraph may leave as it is written
reduction_calls  reductions as the native ops take them
reductions       allreduce, reducescatter
gathers          allgather, alltoall, broadcast, barrier, join
sparse           tf.IndexedSlices
gradients        the gradients of the collectives
arrays, objects  collectives of NumPy arrays and of Python objects
require_same     lists that must be the same on all ranks
topology_ops     where a rank stands, as values in a graph
"""

from keras_ring._ops import gradients

# Whoever imports a collective can differentiate it.
__all__ = ["gradients"]
