"""The commits of steps in an elastic job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_ring._typing import Gradient, Tensor
from keras_ring.tensorflow import libraries, ordering, reduction_calls, xla


def commit(group: str, results: Sequence[Gradient]) -> Tensor:
    """Asks whether a step counts, once it has all of its results.

    Args:
        group: String, the commit group of the step.
        results: The results of its operations; `None`s are left out.

    Returns:
        A boolean scalar, which is the same on all ranks. In a job that is not
        elastic it is `True`.
    """
    if xla.is_tracing():
        xla.reject("the commit of", group, reduction_calls.OF_A_STEP)
    ready = [
        result.values if isinstance(result, tf.IndexedSlices) else result
        for result in results
        if result is not None
    ]
    with tf.control_dependencies(ready):
        committed = libraries.ops().keras_ring_commit(commit_group=group)
    if not tf.executing_eagerly():
        ordering.run_independently(committed.op)
    return committed


def if_committed(
    group: str, results: Sequence[Gradient], use: Callable[[], None]
) -> None:
    """Calls a function that uses the results of a step, if the step counts.

    Args:
        group: String, the commit group of the step.
        results: The results of its operations.
        use: Function without arguments. In a graph it becomes one branch, and
            must not make variables.
    """
    committed = commit(group, results)
    if tf.executing_eagerly():
        if committed:
            use()
        return

    def used() -> Tensor:
        use()
        return tf.constant(True)

    # Automatic control dependencies run it, since it changes variables.
    tf.cond(committed, used, lambda: tf.constant(False))
