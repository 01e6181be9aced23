"""Data parallel training with PyTorch.

```python
import keras_ring.torch as kr

kr.init()
optimizer = kr.DistributedOptimizer(optimizer, model.named_parameters())
```

It has the names and arguments of Horovod's binding for PyTorch. It imports
neither TensorFlow nor Keras. Names are resolved on first use.

reductions, gathers  collectives of tensors, at once, asynchronous, in place
derivatives        those with a derivative
sparse             sums of sparse tensors
operations         handles, names, submissions to the runtime
reduction_calls, gather_calls  collectives of tensors that were checked
tensors            memory, dtypes and devices of tensors
arena              PyTorch's allocator, in memory that other ranks read
compression        narrower formats on the wire
optimizer          `DistributedOptimizer`
gradient_reducer   reduces gradients during the backward pass
parameter_check    compares parameters between ranks
local_steps        warns of optimizers that reduce nothing
gradient_operations  reductions that are the same in each step
parameters         shares parameters and the state of optimizers
buffers            shares buffers after each forward pass
sync_batch_norm    batch normalization over all ranks
samplers           divides data sets
horovod_names      names of Horovod that the core does not have
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_ring.core import installs as _installs

if TYPE_CHECKING:
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
    from keras_ring.core.job import init, shutdown
    from keras_ring.core.objects import allgather_object, broadcast_object
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
    from keras_ring.torch.buffers import broadcast_buffers
    from keras_ring.torch.compression import Compression
    from keras_ring.torch.gathers import (
        allgather,
        allgather_async,
        alltoall,
        alltoall_async,
        broadcast,
        broadcast_,
        broadcast_async,
        broadcast_async_,
        grouped_allgather,
        grouped_allgather_async,
    )
    from keras_ring.torch.horovod_names import (
        HorovodInternalError,
        barrier,
        join,
    )
    from keras_ring.torch.operations import poll, synchronize
    from keras_ring.torch.optimizer import DistributedOptimizer
    from keras_ring.torch.parameters import (
        broadcast_optimizer_state,
        broadcast_parameters,
    )
    from keras_ring.torch.reductions import (
        allreduce,
        allreduce_,
        allreduce_async,
        allreduce_async_,
        grouped_allreduce,
        grouped_allreduce_,
        grouped_allreduce_async,
        grouped_allreduce_async_,
        grouped_reducescatter,
        grouped_reducescatter_async,
        reducescatter,
        reducescatter_async,
    )
    from keras_ring.torch.samplers import ElasticSampler
    from keras_ring.torch.sparse import sparse_allreduce_async
    from keras_ring.torch.sync_batch_norm import SyncBatchNorm

_CORE = "keras_ring.core"


def _prepare() -> None:
    """Prepares a start of a job: PyTorch's tensors go into the arena."""
    try:
        from keras_ring.torch import arena
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return  # no function of this package will run
    arena.install()


def _watch_steps() -> None:
    """Watches for optimizers that reduce nothing."""
    try:
        from keras_ring.torch import local_steps
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return
    local_steps.watch()


_installs.before_start(_prepare)
_installs.on_start(_watch_steps)

# The module of each public name.
_HOMES = {
    **dict.fromkeys(
        (
            "ccl_built",
            "cuda_built",
            "ddl_built",
            "gloo_built",
            "gloo_enabled",
            "mpi_built",
            "mpi_enabled",
            "mpi_threads_supported",
            "nccl_built",
            "rocm_built",
        ),
        f"{_CORE}.builds",
    ),
    **dict.fromkeys(("init", "shutdown"), f"{_CORE}.job"),
    **dict.fromkeys(
        ("allgather_object", "broadcast_object"), f"{_CORE}.objects"
    ),
    **dict.fromkeys(
        (
            "ProcessSet",
            "add_process_set",
            "add_process_sets",
            "global_process_set",
            "remove_process_set",
        ),
        f"{_CORE}.process_sets",
    ),
    **dict.fromkeys(
        ("Adasum", "Average", "Max", "Min", "Product", "ReduceOp", "Sum"),
        f"{_CORE}.reduce_ops",
    ),
    **dict.fromkeys(
        ("start_timeline", "stop_timeline"), f"{_CORE}.timeline_recording"
    ),
    **dict.fromkeys(
        (
            "cross_rank",
            "cross_size",
            "is_homogeneous",
            "is_initialized",
            "local_rank",
            "local_size",
            "metrics",
            "rank",
            "size",
        ),
        f"{_CORE}.topology",
    ),
    "broadcast_buffers": f"{__name__}.buffers",
    "Compression": f"{__name__}.compression",
    **dict.fromkeys(
        (
            "allgather",
            "allgather_async",
            "alltoall",
            "alltoall_async",
            "broadcast",
            "broadcast_",
            "broadcast_async",
            "broadcast_async_",
            "grouped_allgather",
            "grouped_allgather_async",
        ),
        f"{__name__}.gathers",
    ),
    **dict.fromkeys(
        ("HorovodInternalError", "barrier", "join"), f"{__name__}.horovod_names"
    ),
    **dict.fromkeys(("poll", "synchronize"), f"{__name__}.operations"),
    "DistributedOptimizer": f"{__name__}.optimizer",
    **dict.fromkeys(
        ("broadcast_optimizer_state", "broadcast_parameters"),
        f"{__name__}.parameters",
    ),
    **dict.fromkeys(
        (
            "allreduce",
            "allreduce_",
            "allreduce_async",
            "allreduce_async_",
            "grouped_allreduce",
            "grouped_allreduce_",
            "grouped_allreduce_async",
            "grouped_allreduce_async_",
            "grouped_reducescatter",
            "grouped_reducescatter_async",
            "reducescatter",
            "reducescatter_async",
        ),
        f"{__name__}.reductions",
    ),
    "ElasticSampler": f"{__name__}.samplers",
    "sparse_allreduce_async": f"{__name__}.sparse",
    "SyncBatchNorm": f"{__name__}.sync_batch_norm",
}

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "ElasticSampler",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "add_process_sets",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_buffers",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
