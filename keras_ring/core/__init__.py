"""A job of processes without a framework, for programs that use NumPy.

```python
from keras_ring import core as kr

kr.init()
total = kr.allreduce(np.ones(3), kr.Sum)
```

`keras_ring` has the same functions for TensorFlow. Both belong to one job, and
a program may use both. Importing this package loads no framework, only NumPy.
"""

from __future__ import annotations

from keras_ring._runtime.process_sets import (
    ProcessSet,
    add_process_set,
    add_process_sets,
    global_process_set,
    remove_process_set,
)
from keras_ring._runtime.topology import (
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
from keras_ring.core.wire_formats import Compression

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
