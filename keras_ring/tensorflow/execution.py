"""How this program executes: eagerly, in functions, by graphs and sessions."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_func_graphs as branches

from keras_ring._typing import Graph


def is_graph_program() -> bool:
    """Returns whether this program has switched off eager execution."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def functions_run_eagerly() -> bool:
    """Returns whether the program has switched off `tf.function`."""
    return bool(tf.config.functions_run_eagerly())


def is_in_branch(graph: Graph | None) -> bool:
    """Returns whether a branch or a loop is traced, which ranks may skip.

    Args:
        graph: The graph to look in, or `None` for all graphs.
    """
    present = tf.compat.v1.get_default_graph()
    while present is not None and present is not graph:
        if isinstance(present, branches.ControlFlowFuncGraph):
            return True
        present = getattr(present, "outer_graph", None)
    return False
