"""The execution mode of this program: eager, or by graphs and sessions."""

import tensorflow as tf


def is_graph_program() -> bool:
    """Returns whether this program has switched off eager execution."""
    return not tf.compat.v1.executing_eagerly_outside_functions()
