"""Data parallel training with Apache MXNet.

```python
import keras_ring.mxnet as kr

kr.init()
trainer = kr.DistributedTrainer(net.collect_params(), "adam")
```

It has the names and arguments of Horovod's binding for MXNet. It imports no
other framework. Names are resolved on first use.

reductions, gathers  collectives of NDArrays, also in place
trainer      `DistributedTrainer` for Gluon
optimizer    `DistributedOptimizer`
parameters   shares parameters
calls        collectives of NDArrays that were checked
tensors      memory and dtypes of NDArrays
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
    from keras_ring.core.wire_formats import Compression
    from keras_ring.mxnet.gathers import (
        allgather,
        alltoall,
        broadcast,
        broadcast_,
        grouped_allgather,
    )
    from keras_ring.mxnet.optimizer import DistributedOptimizer
    from keras_ring.mxnet.parameters import broadcast_parameters
    from keras_ring.mxnet.reductions import (
        allreduce,
        allreduce_,
        grouped_allreduce,
        grouped_allreduce_,
        reducescatter,
    )
    from keras_ring.mxnet.trainer import DistributedTrainer

_CORE = "keras_ring.core"

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
    "Compression": f"{_CORE}.wire_formats",
    **dict.fromkeys(
        (
            "allgather",
            "alltoall",
            "broadcast",
            "broadcast_",
            "grouped_allgather",
        ),
        f"{__name__}.gathers",
    ),
    "DistributedOptimizer": f"{__name__}.optimizer",
    "broadcast_parameters": f"{__name__}.parameters",
    **dict.fromkeys(
        (
            "allreduce",
            "allreduce_",
            "grouped_allreduce",
            "grouped_allreduce_",
            "reducescatter",
        ),
        f"{__name__}.reductions",
    ),
    "DistributedTrainer": f"{__name__}.trainer",
}

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "add_process_sets",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_object",
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
    "grouped_allreduce",
    "grouped_allreduce_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
