"""Where pickles of earlier versions look for `ReduceOp`."""

from keras_ring.core.reduce_ops import ReduceOp as ReduceOp
