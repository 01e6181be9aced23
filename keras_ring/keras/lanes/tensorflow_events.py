"""The functions of TensorFlow that events are bound to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops

from keras_ring.keras.lanes import events
from keras_ring.keras.lanes.binding import Bound, HookPoint, Table

_STRATEGIES = (
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "TPUStrategy",
    "OneDeviceStrategy",
    "experimental.CentralStorageStrategy",
    "experimental.MultiWorkerMirroredStrategy",
    "experimental.ParameterServerStrategy",
    "experimental.TPUStrategy",
)


def _strategies() -> Iterator[HookPoint]:
    for name in _STRATEGIES:
        found: Any = tf.distribute
        for each in name.split("."):
            found = getattr(found, each, None)
        if found is not None:
            yield HookPoint(found, "__init__")


def _reads() -> Iterator[HookPoint]:
    # `next` and `get_next` call the first. It is not public, and if it is
    # missing, nothing is bound to it.
    for name in ("_next_internal", "get_next_as_optional"):
        if hasattr(iterator_ops.OwnedIterator, name):
            yield HookPoint(iterator_ops.OwnedIterator, name)


def _calls() -> Iterator[HookPoint]:
    yield HookPoint(type(tf.function(lambda: None)), "__call__")


TABLE: Table = {
    events.PATH_CHANGED: (
        Bound(
            "tensorflow:io.gfile.mkdir, makedirs, remove, rmtree, rename, copy"
        ),
    ),
    events.RANK_ASKED: (Bound("keras_ring:rank_op, local_rank_op"),),
    events.KERNEL_CALLED: (
        # The module itself is not changed: gradients use it, too.
        Bound("tensorflow.python.ops.nn_ops:gen_nn_ops"),
    ),
    events.GRADIENT_TAKEN: (Bound("tensorflow:GradientTape.gradient"),),
    events.ASSIGNED: (
        Bound(
            "tensorflow.python.ops.resource_variable_ops:"
            "ResourceVariable.assign, assign_add, assign_sub"
        ),
        # The class of variables that are made while a function is traced.
        Bound(
            "tensorflow.python.ops.resource_variable_ops:"
            "BaseResourceVariable.assign, assign_add, assign_sub"
        ),
    ),
    events.FUNCTION_CALLED: (
        Bound("calls of what `tf.function` makes", find=_calls),
    ),
    events.GRAPH_RUN: (
        # Private to TensorFlow. All calls of a traced function use it: those
        # of a `tf.function` and those of its `get_concrete_function`.
        Bound(
            "tensorflow.python.eager.polymorphic_function.concrete_function:"
            "ConcreteFunction._call_flat"
        ),
    ),
    events.ITERATOR_READ: (Bound("TensorFlow's `OwnedIterator`", find=_reads),),
    events.DATASET_CACHED: (Bound("tensorflow:data.Dataset.cache"),),
    events.CHECKPOINT_SAVED: (
        Bound("tensorflow:train.Checkpoint.write, save"),
        Bound("tensorflow:train.CheckpointManager.save"),
    ),
    events.CHECKPOINT_FILES: (
        Bound("tensorflow.python.checkpoint.checkpoint:TrackableSaver.save"),
        Bound(
            "tensorflow.python.checkpoint.checkpoint_management:"
            "update_checkpoint_state_internal, _delete_file_if_exists"
        ),
    ),
    events.FILE_WRITTEN: (
        Bound("tensorflow:saved_model.save"),
        Bound("tensorflow:data.Dataset.save"),
        Bound("tensorflow:io.write_file, write_graph"),
    ),
    events.FILE_OPENED: (
        Bound("tensorflow:io.TFRecordWriter.__init__"),
        Bound("tensorflow:io.gfile.GFile.__init__"),
    ),
    events.FILE_CLOSED: (
        Bound("tensorflow:io.TFRecordWriter.close, __exit__"),
        Bound("tensorflow:io.gfile.GFile.close, __exit__"),
    ),
    events.SUMMARIES_OPENED: (Bound("tensorflow:summary.create_file_writer"),),
    events.STRATEGY_MADE: (
        Bound("each strategy of `tf.distribute`", find=_strategies),
    ),
    events.GRAPHS_ASKED: (
        Bound(
            "tensorflow:compat.v1.disable_eager_execution, disable_v2_behavior"
        ),
    ),
}
