"""Collectives as TensorFlow ops. This package does not use Keras.

reduce_ops       the ways to combine tensors
compression      narrower number formats on the wire
names            names by which ranks match their tensors
ordering         the order of stateful ops in TensorFlow
xla              collectives in functions that XLA compiles
autograph        keeps AutoGraph out of functions
reduction_calls  prepares reductions for the native ops
reductions       allreduce, reducescatter
gathers          allgather, alltoall, broadcast, barrier, join
sparse           tf.IndexedSlices
gradients        the gradients of the collectives
arrays, objects  collectives of NumPy arrays and of Python objects
require_same     lists that must be the same on all ranks
topology_ops     rank, size and so on as values in a graph
"""

from keras_ring._ops import gradients

# Registers the gradients, so that all collectives can be differentiated.
__all__ = ["gradients"]
