"""Finds the variables of an optimizer that are the same on all ranks.

These are all variables, except slots of variables that each rank trains on its
own, and gradients that a rank accumulates until they are reduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keras_ring._typing import Optimizer, Variable
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.which import is_keras2
from keras_ring.keras.lanes import compat, families, keras2_variables
from keras_ring.keras.lanes.loss_scaling import inner_optimizer


def all_of(optimizer: Optimizer) -> list[Variable]:
    """Returns the variables of an optimizer.

    Args:
        optimizer: An optimizer, of whichever kind; it may not be built.
    """
    if families.is_v1(optimizer):
        return list(optimizer.variables())
    if compat.is_optimizer(optimizer):
        found: list[Variable] = compat.optimizer_variables(optimizer)
        return found
    # An optimizer of Keras 2, in a program that also has Keras 3.
    return keras2_variables.all_of(optimizer)


def shared_variables(
    optimizer: Optimizer, own: Sequence[Variable]
) -> list[Variable]:
    """Returns the variables of an optimizer that are the same on all ranks.

    Args:
        optimizer: An optimizer, of whichever kind; it may not be built.
        own: Trained variables that differ between ranks.
    """
    if families.is_v1(optimizer):
        others = [
            optimizer.get_slot(variable, name)
            for name in optimizer.get_slot_names()
            for variable in own
        ]
    elif compat.is_optimizer(optimizer):
        others = [
            each
            for part in _parts(optimizer)
            for each in (
                *compat.slots_of(part, own),
                *getattr(part, "_accumulated_gradients", ()),
            )
        ]
    else:
        inner = inner_optimizer(optimizer)
        others = keras2_variables.slots(inner, own)
    left_out = {
        id(backend.storage(each)) for each in others if each is not None
    }
    found = {id(backend.storage(each)): each for each in all_of(optimizer)}
    return [each for key, each in found.items() if key not in left_out]


def build(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Makes the variables of an optimizer, as its first update would.

    Values that wait for these variables, such as those of a checkpoint that was
    read before, are assigned to them.

    Args:
        optimizer: An optimizer. Those of TensorFlow 1 are left as they are.
        variables: The variables that it is about to update.
    """
    if families.is_v1(optimizer):
        return
    if compat.is_optimizer(optimizer) and not is_keras2():
        compat.built_optimizer(optimizer, variables)
        return
    inner = inner_optimizer(optimizer)
    with backend.name_scope(name_of(inner)):
        keras2_variables.build(inner, variables)


def name_of(optimizer: Optimizer) -> str:
    """Returns the name of an optimizer in the scope of its variables.

    Args:
        optimizer: An optimizer of any Keras. Before Keras 2.11 it has no
            public name.
    """
    name = getattr(optimizer, "_name", None) or getattr(optimizer, "name", None)
    return str(name or "optimizer")


def _parts(optimizer: Optimizer) -> Iterator[Optimizer]:
    """Yields an optimizer and the optimizers inside of it."""
    inner = inner_optimizer(optimizer)
    yield inner
    # The members of a `MultiOptimizer`.
    yield from getattr(inner, "optimizers", ())
