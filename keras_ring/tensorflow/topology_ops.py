"""Rank, size and so on as ops, whose values are found when a graph runs.

`rank()` and `size()` return Python numbers. In a graph these are constants of
the job in which it was traced.
"""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Tensor
from keras_ring.core import process_sets
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.tensorflow import libraries, ordering
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


def _topology(what: str, name: str | None, process_set_id: int = 0) -> Tensor:
    value = libraries.ops().keras_ring_topology(
        what=what, process_set_id=process_set_id, name=name
    )
    if not tf.executing_eagerly():
        ordering.run_independently(value.op)
    return value
