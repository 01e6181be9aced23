"""Where a rank stands, as values that a graph finds out when it runs.

`rank()` and `size()` are Python numbers: in a graph they are constants, of the
job in which it was traced.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_ring import _graph, _native


def rank_op(name: str | None = None) -> Any:
    """Returns this process's rank, found out when the graph runs.

    Args:
        name: String, the name of the TensorFlow operation.

    Returns:
        An int32 scalar.

    Raises:
        tf.errors.FailedPreconditionError: When it runs, before `init` or
            after `shutdown`.

    Example:
    ```python
    @tf.function
    def shard(examples):
        return examples[kr.rank_op() :: kr.size_op()]
    ```
    """
    return _topology("rank", name)


def size_op(name: str | None = None) -> Any:
    """Returns the number of ranks, found out when the graph runs.

    Args:
        name: As in `rank_op`.

    Returns:
        An int32 scalar.
    """
    return _topology("size", name)


def local_rank_op(name: str | None = None) -> Any:
    """Returns this process's rank within its host; see `rank_op`.

    Args:
        name: As in `rank_op`.

    Returns:
        An int32 scalar.
    """
    return _topology("local_rank", name)


def local_size_op(name: str | None = None) -> Any:
    """Returns the number of ranks of this host; see `rank_op`.

    Args:
        name: As in `rank_op`.

    Returns:
        An int32 scalar.
    """
    return _topology("local_size", name)


def _topology(what: str, name: str | None) -> Any:
    value = _native.tf_ops().keras_ring_topology(what=what, name=name)
    if not tf.executing_eagerly():
        _graph.run_independently(value.op)
    return value
