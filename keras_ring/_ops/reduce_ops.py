"""The former module of `ReduceOp`, for pickles of earlier versions."""

from keras_ring.core.reduce_ops import ReduceOp as ReduceOp
