"""Distributed training of Keras and TensorFlow programs on many processes.

The import of this package loads no TensorFlow, and no native library unless
this process is a rank of a job. Names are resolved on first use, so that the
launcher, which needs neither, starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_ring import _former_paths
from keras_ring._version import __version__
from keras_ring.core import arena as _arena
from keras_ring.core import native as _native
from keras_ring.keras.startup import saved_classes as _saved_classes

if TYPE_CHECKING:
    from keras_ring import callbacks, checkpoint, data, errors, schedules
    from keras_ring.core.builds import (
        ccl_built,
        cuda_built,
        ddl_built,
        gloo_built,
        gloo_enabled,
        mpi_built,
        mpi_enabled,
        mpi_threads_supported,
        nccl_built,
        rocm_built,
    )
    from keras_ring.core.objects import (
        allgather_object,
        broadcast_object,
        broadcast_object_fn,
    )
    from keras_ring.core.process_sets import (
        ProcessSet,
        add_process_set,
        add_process_sets,
        global_process_set,
        remove_process_set,
    )
    from keras_ring.core.reduce_ops import (
        Adasum,
        Average,
        Max,
        Min,
        Product,
        ReduceOp,
        Sum,
    )
    from keras_ring.core.timeline_recording import start_timeline, stop_timeline
    from keras_ring.core.topology import (
        cross_rank,
        cross_size,
        is_homogeneous,
        is_initialized,
        local_rank,
        local_size,
        metrics,
        rank,
        size,
    )
    from keras_ring.job import init, shutdown
    from keras_ring.keras import elastic
    from keras_ring.keras.checkpoint.model_loading import load_model
    from keras_ring.keras.inference.inference import evaluate, predict
    from keras_ring.keras.model.global_variables import (
        broadcast_global_variables,
    )
    from keras_ring.keras.model.model_broadcast import broadcast_model
    from keras_ring.keras.model.session_hook import BroadcastGlobalVariablesHook
    from keras_ring.keras.model.sync_batch_normalization import (
        SyncBatchNormalization,
    )
    from keras_ring.keras.model.variables import (
        broadcast_,
        broadcast_variables,
    )
    from keras_ring.keras.optimizer.local_updates import allow_local_updates
    from keras_ring.keras.optimizer.optimizer import (
        DistributedOptimizer,
        PartialDistributedOptimizer,
    )
    from keras_ring.keras.optimizer.tape import (
        DistributedGradientTape,
        PartialDistributedGradientTape,
    )
    from keras_ring.launch.cli.builds import check_build
    from keras_ring.launch.function_job import run
    from keras_ring.tensorflow.compression import Compression
    from keras_ring.tensorflow.gathers import (
        allgather,
        alltoall,
        barrier,
        broadcast,
        grouped_allgather,
        join,
    )
    from keras_ring.tensorflow.libraries import xla_built
    from keras_ring.tensorflow.pinning import pin_gpu
    from keras_ring.tensorflow.reductions import (
        allreduce,
        grouped_allreduce,
        grouped_reducescatter,
        reducescatter,
    )
    from keras_ring.tensorflow.topology_ops import (
        local_rank_op,
        local_size_op,
        process_set_included_op,
        rank_op,
        size_op,
    )

# Collectives without tensors, which the core has as well.
_OF_NO_TENSORS = ("barrier", "join")
# Modules that programs of Keras use.
_OF_KERAS = ("callbacks", "checkpoint", "data", "elastic", "schedules")
# The path of each public module.
_MODULES = {
    "callbacks": "callbacks",
    "checkpoint": "checkpoint",
    "data": "data",
    "elastic": "keras.elastic",
    "errors": "errors",
    "schedules": "schedules",
}
# The module of each other public name.
_HOMES = {
    "ccl_built": "core.builds",
    "check_build": "launch.cli.builds",
    "cuda_built": "core.builds",
    "ddl_built": "core.builds",
    "gloo_built": "core.builds",
    "gloo_enabled": "core.builds",
    "mpi_built": "core.builds",
    "mpi_enabled": "core.builds",
    "mpi_threads_supported": "core.builds",
    "nccl_built": "core.builds",
    "rocm_built": "core.builds",
    "pin_gpu": "tensorflow.pinning",
    "allow_local_updates": "keras.optimizer.local_updates",
    "broadcast_model": "keras.model.model_broadcast",
    "cross_rank": "core.topology",
    "cross_size": "core.topology",
    "init": "job",
    "is_homogeneous": "core.topology",
    "is_initialized": "core.topology",
    "local_rank": "core.topology",
    "local_size": "core.topology",
    "metrics": "core.topology",
    "rank": "core.topology",
    "shutdown": "job",
    "start_timeline": "core.timeline_recording",
    "stop_timeline": "core.timeline_recording",
    "size": "core.topology",
    "xla_built": "tensorflow.libraries",
    "Compression": "keras.backends.formats",
    "allgather_object": "core.objects",
    "broadcast_": "keras.model.variables",
    "broadcast_global_variables": "keras.model.global_variables",
    "broadcast_object": "core.objects",
    "broadcast_object_fn": "core.objects",
    "broadcast_variables": "keras.model.variables",
    "evaluate": "keras.inference.inference",
    "predict": "keras.inference.inference",
    "Adasum": "core.reduce_ops",
    "BroadcastGlobalVariablesHook": "keras.model.session_hook",
    "Average": "core.reduce_ops",
    "Max": "core.reduce_ops",
    "Min": "core.reduce_ops",
    "Product": "core.reduce_ops",
    "ReduceOp": "core.reduce_ops",
    "Sum": "core.reduce_ops",
    "allgather": "tensorflow.gathers",
    "allreduce": "tensorflow.reductions",
    "alltoall": "tensorflow.gathers",
    "barrier": "tensorflow.gathers",
    "broadcast": "tensorflow.gathers",
    "grouped_allgather": "tensorflow.gathers",
    "grouped_allreduce": "tensorflow.reductions",
    "grouped_reducescatter": "tensorflow.reductions",
    "join": "tensorflow.gathers",
    "reducescatter": "tensorflow.reductions",
    "DistributedOptimizer": "keras.optimizer.optimizer",
    "ProcessSet": "core.process_sets",
    "add_process_set": "core.process_sets",
    "add_process_sets": "core.process_sets",
    "global_process_set": "core.process_sets",
    "remove_process_set": "core.process_sets",
    "run": "launch.function_job",
    "PartialDistributedOptimizer": "keras.optimizer.optimizer",
    "load_model": "keras.checkpoint.model_loading",
    "SyncBatchNormalization": "keras.model.sync_batch_normalization",
    "DistributedGradientTape": "keras.optimizer.tape",
    "PartialDistributedGradientTape": "keras.optimizer.tape",
    "local_rank_op": "tensorflow.topology_ops",
    "local_size_op": "tensorflow.topology_ops",
    "process_set_included_op": "tensorflow.topology_ops",
    "rank_op": "tensorflow.topology_ops",
    "size_op": "tensorflow.topology_ops",
}

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "SyncBatchNormalization",
    "__version__",
    "add_process_set",
    "add_process_sets",
    "allgather",
    "allgather_object",
    "allow_local_updates",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_model",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "check_build",
    "checkpoint",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "data",
    "ddl_built",
    "elastic",
    "errors",
    "evaluate",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "pin_gpu",
    "predict",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "run",
    "schedules",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
    "xla_built",
]

_native.warn_of_mismatch()
_arena.prepare()
_saved_classes.register()
_former_paths.keep()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name, "")
    if not home and name not in _MODULES:
        raise AttributeError(f"module 'keras_ring' has no attribute '{name}'")
    if home.startswith("keras.") or name in _OF_KERAS:
        # The job may be one that `keras_ring.torch` or another has started.
        importlib.import_module("keras_ring.job")
    try:
        path = home or _MODULES[name]
        module = importlib.import_module(f"keras_ring.{path}")
    except ModuleNotFoundError as error:
        if name not in _OF_NO_TENSORS:
            raise _native.without_tensorflow(error) from None
        # A program of Keras on another framework.
        module = importlib.import_module("keras_ring.core")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
