"""The commits of steps in an elastic job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_ring._typing import Gradient, Tensor
from keras_ring.tensorflow import libraries, ordering, reduction_calls, xla


def committed(group: str, results: Sequence[Gradient]) -> Tensor:
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
        answer = libraries.ops().keras_ring_commit(commit_group=group)
    if not tf.executing_eagerly():
        ordering.run_independently(answer.op)
    return answer


def use_if(answers: Sequence[Tensor | bool], use: Callable[[], Any]) -> None:
    """Calls a function that uses the results of steps, if all of them count.

    Args:
        answers: Whether they do: results of `committed`, or booleans.
        use: Function without arguments. In a graph it becomes one branch, and
            must not make variables.
    """
    if tf.executing_eagerly():
        if all(bool(answer) for answer in answers):
            use()
        return

    def used() -> Tensor:
        use()
        return tf.constant(True)

    # Automatic control dependencies run it, since it changes variables.
    all_count = tf.reduce_all(tf.stack([*answers]))
    tf.cond(all_count, used, lambda: tf.constant(False))


def zeros_unless(answer: Tensor, results: Sequence[Gradient]) -> list[Gradient]:
    """Returns the results of a step, or zeros if the step does not count.

    What is left of the results of such a step differs between ranks.

    Args:
        answer: A result of `committed`.
        results: Tensors or `None`.
    """
    there = [result for result in results if result is not None]
    chosen = iter(
        tf.cond(
            answer,
            lambda: [tf.identity(each) for each in there],
            lambda: [tf.zeros_like(each) for each in there],
        )
        if there
        else ()
    )
    return [None if result is None else next(chosen) for result in results]
