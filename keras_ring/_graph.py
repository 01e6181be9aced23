"""The one place that touches how TensorFlow orders stateful ops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def run_independently(op: Any) -> None:
    """Lets `op` overlap with other stateful ops of its graph.

    Our ops are stateful, so that TensorFlow runs each as often as the program
    says. In a `tf.function` its automatic control dependencies would then also
    run them one after another, and no two reductions would ever be in flight
    together. The ranks agree on an order of their own, so ours need none.

    `experimental_acd_manager` is TensorFlow's own, not public: set while a
    `tf.function` is traced, and `None` in graphs that have no automatic
    control dependencies. `tests/multiprocess/test_graph.py` fails if it stops
    doing what is said here.

    Args:
        op: A `tf.Operation` made in the current graph.
    """
    if tf.executing_eagerly():
        return
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(op)
