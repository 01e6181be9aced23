"""A job of processes without a framework, for programs that use NumPy.

```python
from keras_ring import core as kr

kr.init()
total = kr.allreduce(np.ones(3), kr.Sum)
```

`keras_ring` has the same functions for TensorFlow. Both belong to one job, and
a program may use both. This package needs NumPy and no framework. Names are
resolved on first use, as in `keras_ring`.

operations         starts collectives of the native runtime
arrays, objects    collectives of NumPy arrays and of Python objects
agreement          lists that must be the same on all ranks
meeting            a point that ranks reach while they do something else
reduce_ops, wire_formats, names  what every adapter of a framework needs
job, installs      start and end of a job, and what frameworks add to them
topology           ranks and sizes of this process and its job
process_sets       subsets of the ranks of a job
native, core.cc    the native libraries, and the one for Python
arena              tensors in memory that other ranks of the host can read
import_hooks       calls functions when a program has imported a framework
timeline_recording  starts and stops timelines
autotune           tunes a job while it runs
engines            how processes that MPI, Slurm and others start become ranks
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_ring.core.agreement import require_same
    from keras_ring.core.arrays import (
        allgather,
        allreduce,
        alltoall,
        barrier,
        broadcast,
        join,
        reducescatter,
    )
    from keras_ring.core.job import init, shutdown
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
    from keras_ring.core.wire_formats import Compression

# The module of each public name.
_HOMES = {
    "require_same": "agreement",
    "allgather": "arrays",
    "allreduce": "arrays",
    "alltoall": "arrays",
    "barrier": "arrays",
    "broadcast": "arrays",
    "join": "arrays",
    "reducescatter": "arrays",
    "init": "job",
    "shutdown": "job",
    "allgather_object": "objects",
    "broadcast_object": "objects",
    "broadcast_object_fn": "objects",
    "ProcessSet": "process_sets",
    "add_process_set": "process_sets",
    "add_process_sets": "process_sets",
    "global_process_set": "process_sets",
    "remove_process_set": "process_sets",
    "Adasum": "reduce_ops",
    "Average": "reduce_ops",
    "Max": "reduce_ops",
    "Min": "reduce_ops",
    "Product": "reduce_ops",
    "ReduceOp": "reduce_ops",
    "Sum": "reduce_ops",
    "start_timeline": "timeline_recording",
    "stop_timeline": "timeline_recording",
    "cross_rank": "topology",
    "cross_size": "topology",
    "is_homogeneous": "topology",
    "is_initialized": "topology",
    "local_rank": "topology",
    "local_size": "topology",
    "metrics": "topology",
    "rank": "topology",
    "size": "topology",
    "Compression": "wire_formats",
}

__all__ = [
    "Adasum",
    "Average",
    "Compression",
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
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_object_fn",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "metrics",
    "rank",
    "reducescatter",
    "remove_process_set",
    "require_same",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
