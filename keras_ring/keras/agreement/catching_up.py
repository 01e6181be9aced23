"""Exchanges that a rank leaves out because it has come in after them."""

from __future__ import annotations

from keras_ring.core.process_sets import ProcessSet, is_alone
from keras_ring.keras import scope


def exchanges_nothing(process_set: ProcessSet) -> bool:
    """Returns whether the caller has nobody to exchange anything with.

    It is the only member of the process set, or does what the others have done
    before it came in.
    """
    return scope.current().catches_up or is_alone(process_set)
