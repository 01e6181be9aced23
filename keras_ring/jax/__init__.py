"""Data parallel training with JAX.

```python
import keras_ring.jax as kr

kr.init()
optimizer = kr.DistributedOptimizer(optax.adam(1e-3))
```

It imports neither TensorFlow nor Keras. Names are resolved on first use.

collectives  allreduce, allgather, broadcast, reducescatter, alltoall of pytrees
optimizer    `DistributedOptimizer` for Optax
primitive    the primitive of JAX that collectives are, its derivatives
ordering     the order of collectives in compiled programs
calls        the calls of compiled programs that collectives become
names        names of collectives that a program does not name
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_ring.core import installs as _installs

if TYPE_CHECKING:
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
    from keras_ring.jax.collectives import (
        allgather,
        allreduce,
        alltoall,
        broadcast,
        reducescatter,
    )
    from keras_ring.jax.optimizer import DistributedOptimizer, metric_average

_CORE = "keras_ring.core"


def _prepare() -> None:
    """Prepares a start of a job: tensors on their way go into the arena."""
    try:
        from keras_ring.jax import calls
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "jaxlib"):
            raise
        return  # no function of this package will run
    calls.install()
    _installs.before_end(calls.finish)


_installs.before_start(_prepare)

# The module of each public name.
_HOMES = {
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
    "barrier": f"{_CORE}.arrays",
    **dict.fromkeys(
        ("allgather", "allreduce", "alltoall", "broadcast", "reducescatter"),
        f"{__name__}.collectives",
    ),
    **dict.fromkeys(
        ("DistributedOptimizer", "metric_average"), f"{__name__}.optimizer"
    ),
}

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
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
    "cross_rank",
    "cross_size",
    "global_process_set",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metric_average",
    "metrics",
    "rank",
    "reducescatter",
    "remove_process_set",
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
