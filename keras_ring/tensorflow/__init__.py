"""Collectives as TensorFlow ops. This package does not use Keras.

libraries        loads the native ops
compression      narrower number formats on the wire
names            names by which ranks match their tensors
ordering         the order of stateful ops in TensorFlow
xla              collectives in functions that XLA compiles
autograph        keeps AutoGraph out of functions
topology_ops     rank, size and so on as values in a graph
reduction_calls  prepares reductions for the native ops
reductions       allreduce, reducescatter
gathers          allgather, alltoall, broadcast, barrier, join
sparse           tf.IndexedSlices
gradients        the gradients of the collectives
execution        the execution mode of the program
tensors          facts about tensors and variables
batch_rows       rows of a batch, which ranks share
array_functions  functions by the names of `keras.ops`
accumulator      gradients of several passes
sessions         comparisons between ranks that run in sessions
dataset_iterators  reads batches ahead of a training function
input_wait       the wait for a batch that is read in a graph
global_random    the random numbers of no generator
op_errors        errors of compiled steps with the cause first
"""

from keras_ring.tensorflow import gradients

# Registers the gradients, so that all collectives can be differentiated.
__all__ = ["gradients"]
