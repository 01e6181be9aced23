"""Comparisons between ranks in a training that has no epochs."""

from __future__ import annotations

from keras_ring._typing import Model
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import ConsistencyError
from keras_ring.keras.agreement.difference import first_difference

_EVERY = 1024


def is_due(step: int) -> bool:
    """Returns whether ranks compare after a step.

    They do after steps 1, 2, 4 and so on, and after multiples of 1024.

    Args:
        step: Integer, the number of the step, from 1 on.
    """
    return step & (step - 1) == 0 or step % _EVERY == 0


def require_same_weights(model: Model, number: int) -> None:
    """Raises an error on all ranks if these have different weights.

    Args:
        model: A `keras.Model`.
        number: Integer, how often it was trained on single batches.

    Raises:
        ConsistencyError: If they do.
    """
    apart = first_difference(
        model.trainable_variables, "auto/batch/weights", global_process_set
    )
    if apart is not None:
        raise ConsistencyError(
            f"After {number:,} calls of `train_on_batch` ranks have different "
            f"values of {apart.path!r}, of which {apart.ranks}. The program "
            "trains or changes the model on some ranks alone, or in another "
            "order."
        )
