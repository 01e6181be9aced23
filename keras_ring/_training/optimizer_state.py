"""Which variables of an optimizer are the same on all ranks.

All of them, but for what an optimizer remembers of variables that each rank
trains on its own, and for gradients that a rank adds up until they are reduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from keras_ring._keras import compat, keras2_variables
from keras_ring._keras.loss_scaling import inner_optimizer
from keras_ring._keras.which import is_keras2
from keras_ring._typing import Optimizer, Variable


def all_of(optimizer: Optimizer) -> list[Variable]:
    """Returns the variables of an optimizer.

    Args:
        optimizer: An optimizer, of whichever kind; it may not be built.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return list(optimizer.variables())
    if compat.is_optimizer(optimizer):
        found: list[Variable] = compat.optimizer_variables(optimizer)
        return found
    # Of the Keras 2 beside Keras 3.
    return keras2_variables.all_of(optimizer)


def shared_variables(
    optimizer: Optimizer, own: Sequence[Variable]
) -> list[Variable]:
    """Returns the variables of an optimizer that are the same on all ranks.

    Args:
        optimizer: An optimizer, of whichever kind; it may not be built.
        own: Variables that it trains and that differ between ranks.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
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
        id(compat.tf_variable(each)) for each in others if each is not None
    }
    found = {id(compat.tf_variable(each)): each for each in all_of(optimizer)}
    return [each for key, each in found.items() if key not in left_out]


def build(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Makes the variables of an optimizer, as its first update would.

    What waits for them, as a checkpoint that was read before, gets into them.

    Args:
        optimizer: An optimizer. Those of TensorFlow 1 are left as they are.
        variables: What it is about to update.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return
    if compat.is_optimizer(optimizer) and not is_keras2():
        compat.built_optimizer(optimizer, variables)
        return
    inner = inner_optimizer(optimizer)
    with tf.name_scope(name_of(inner)):
        keras2_variables.build(inner, variables)


def name_of(optimizer: Optimizer) -> str:
    """Returns what an optimizer calls itself, in the scope of its variables.

    Args:
        optimizer: An optimizer of any Keras; those of before 2.11 have no
            public name.
    """
    name = getattr(optimizer, "_name", None) or getattr(optimizer, "name", None)
    return str(name or "optimizer")


def _parts(optimizer: Optimizer) -> Iterator[Optimizer]:
    """Yields the optimizers that one consists of, itself among them."""
    inner = inner_optimizer(optimizer)
    yield inner
    # Of a `MultiOptimizer`.
    yield from getattr(inner, "optimizers", ())
