"""Shares the variables of a TensorFlow 1 graph between ranks."""

from __future__ import annotations

import tensorflow as tf

from keras_ring._typing import Operation
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.model.variables import broadcast_
from keras_ring.tensorflow.autograph import do_not_convert


@takes_horovods(
    "process_set",
)
@do_not_convert
@described
def broadcast_global_variables(
    root_rank: int, *, process_set: ProcessSet = global_process_set
) -> Operation:
    """Makes an operation that broadcasts a TensorFlow 1 graph's variables.

    Args:
        root_rank: {{root_rank}}
        process_set: {{process_set}}

    Returns:
        An operation, to be run once the variables are initialized.

    Raises:
        RuntimeError: In eager execution, where no graph has variables.

    Example:
    ```python
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(kr.broadcast_global_variables(0))
    ```
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "`broadcast_global_variables` makes an operation for the graph "
            "and session of a TensorFlow 1 program. In eager execution use "
            "`kr.broadcast_variables(model.variables, root_rank)`."
        )
    return tf.group(
        *broadcast_(
            tf.compat.v1.global_variables(),
            root_rank,
            name="broadcast_global_variables",
            process_set=process_set,
        )
    )
