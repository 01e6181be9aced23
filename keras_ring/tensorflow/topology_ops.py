"""Rank, size and so on as ops, whose values are found when a graph runs.

`rank()` and `size()` return Python numbers. In a graph these are constants of
the job in which it was traced. An elastic job loses ranks while its graphs
stay, so what keras_ring itself adds to graphs takes `size_in_graph` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ring._typing import Tensor
from keras_ring.core import process_sets, topology
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.tensorflow import libraries, ordering, xla
from keras_ring.tensorflow.autograph import do_not_convert


@do_not_convert
@described
def rank_op(
    name: str | None = None,
    *,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the rank of this process when the graph runs.

    Args:
        name: {{op_name}}
        process_set: A `ProcessSet`, in which the rank is wanted. Defaults to
            all ranks.

    Returns:
        An int32 scalar.

    Raises:
        tf.errors.FailedPreconditionError: {{topology}}
        tf.errors.InvalidArgumentError: When it runs, if this rank is not a
            member of the process set.

    Example:
    ```python
    @tf.function
    def shard(examples):
        return examples[kr.rank_op() :: kr.size_op()]
    ```
    """
    return _topology("rank", name, process_sets.id_of(process_set))


@takes_horovods("process_set_id name")
@do_not_convert
@described
def size_op(
    name: str | None = None,
    *,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the number of ranks when the graph runs.

    Args:
        name: {{op_name}}
        process_set: A `ProcessSet`, of which this rank need not be a member.
            Defaults to all ranks.

    Returns:
        An int32 scalar.
    """
    return _topology("size", name, process_sets.id_of(process_set))


@do_not_convert
@described
def process_set_included_op(
    process_set_id: int = 0, name: str | None = None
) -> Tensor:
    """Returns whether this process is a member when the graph runs.

    Args:
        process_set_id: Integer, the `process_set_id` of a `ProcessSet`.
            Defaults to `0`, all ranks.
        name: {{op_name}}

    Returns:
        An int32 scalar, 1 or 0.

    Raises:
        tf.errors.FailedPreconditionError: When it runs, if there is no such
            set.
    """
    return _topology("included", name, process_set_id)


@do_not_convert
@described
def local_rank_op(name: str | None = None) -> Tensor:
    """Returns this process's rank within its host; see `rank_op`.

    Args:
        name: {{op_name}}

    Returns:
        An int32 scalar.
    """
    return _topology("local_rank", name)


@do_not_convert
@described
def local_size_op(name: str | None = None) -> Tensor:
    """Returns the number of ranks of this host; see `rank_op`.

    Args:
        name: {{op_name}}

    Returns:
        An int32 scalar.
    """
    return _topology("local_size", name)


def size_in_graph(process_set: ProcessSet, after: Sequence[Tensor] = ()) -> Any:
    """Returns the number of ranks that is right whenever a graph runs.

    Args:
        process_set: A `kr.ProcessSet`.
        after: Tensors, the results of collectives: the ranks are counted when
            these are there. A rank may be lost while the graph waits for them.

    Returns:
        An integer, or in a graph of an elastic job an int32 scalar.

    Raises:
        NotImplementedError: In such a graph, if XLA compiles it.
    """
    if not _ranks_may_change():
        return process_set.size()
    with tf.control_dependencies(after):
        return size_op(process_set=process_set)


def rank_in_graph(process_set: ProcessSet, after: Sequence[Tensor] = ()) -> Any:
    """Returns the index of this rank that is right whenever a graph runs.

    Args:
        process_set: A `kr.ProcessSet`, of which this rank is a member.
        after: As for `size_in_graph`.

    Returns:
        An integer, or in a graph of an elastic job an int32 scalar.

    Raises:
        NotImplementedError: In such a graph, if XLA compiles it.
    """
    if not _ranks_may_change():
        return process_set.rank()
    with tf.control_dependencies(after):
        return rank_op(process_set=process_set)


def mean_factor(
    process_set: ProcessSet, factor: float = 1.0, after: Sequence[Tensor] = ()
) -> Any:
    """Returns a factor divided by the number of ranks.

    Args:
        process_set: A `kr.ProcessSet`.
        factor: Float, the factor.
        after: As for `size_in_graph`.

    Returns:
        A float, or in a graph of an elastic job a scalar of float64.
    """
    size = size_in_graph(process_set, after)
    if isinstance(size, int):
        return factor / size
    return tf.constant(factor, tf.float64) / tf.cast(size, tf.float64)


def static_size(process_set: ProcessSet) -> int | None:
    """Returns the number of ranks for a static shape, or `None` if it changes.

    Args:
        process_set: A `kr.ProcessSet`.
    """
    return None if _ranks_may_change() else process_set.size()


def _ranks_may_change() -> bool:
    """Returns whether a graph is made that may outlive the ranks there are."""
    if tf.executing_eagerly() or not topology.is_elastic():
        return False
    if xla.is_tracing():
        xla.reject(
            "the value of",
            "kr.size()",
            "It changes when ranks leave an elastic job. Compile with "
            "`jit_compile=False`.",
        )
    return True


def _topology(what: str, name: str | None, process_set_id: int = 0) -> Tensor:
    value = libraries.ops().keras_ring_topology(
        what=what, process_set_id=process_set_id, name=name
    )
    if not tf.executing_eagerly():
        ordering.run_independently(value.op)
    return value
