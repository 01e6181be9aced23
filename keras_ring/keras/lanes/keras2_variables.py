"""The variables of Keras 2 optimizers, both the current and legacy ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from keras_ring._typing import Optimizer, Variable
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes.loss_scaling import inner_optimizer


def build(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Makes the variables of an optimizer if it has none."""
    with backend.outside_of_traces():
        if hasattr(optimizer, "build"):
            optimizer.build(variables)
        else:
            # One of `keras.optimizers.legacy`.
            optimizer._create_all_weights(variables)


def variables_of(optimizer: Optimizer) -> list[Variable]:
    """Returns the variables of an optimizer, of either kind."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def all_of(optimizer: Optimizer) -> list[Variable]:
    """Returns the variables of an optimizer, including settings.

    Keras 2 does not count learning rates and their like as variables of an
    optimizer, though they may have been changed.
    """
    inner = inner_optimizer(optimizer)
    settings = [
        getattr(inner, "_learning_rate", None),
        # The settings of `keras.optimizers.legacy`.
        *getattr(inner, "_hyper", {}).values(),
    ]
    found = [
        *variables_of(optimizer),
        *(each for each in settings if _is_variable(each)),
    ]
    return list({id(variable): variable for variable in found}.values())


def trained(
    optimizer: Optimizer, candidates: Iterable[Variable]
) -> list[Variable]:
    """Returns the variables that an optimizer was built for, in that order.

    The list is empty if it was not built, or if any of the variables is not
    among the candidates.
    """
    indexes = _index_by_key(optimizer)
    by_key = {each._unique_id: each for each in candidates}
    if not all(key in by_key for key in indexes):
        return []
    return [by_key[key] for key in sorted(indexes, key=indexes.__getitem__)]


def slots(
    optimizer: Optimizer, variables: Iterable[Variable]
) -> list[Variable]:
    """Returns the slot variables that an optimizer has for these variables."""
    keys = [each._unique_id for each in variables]
    if hasattr(optimizer, "_slots"):
        # One of `keras.optimizers.legacy`.
        return [v for k in keys for v in optimizer._slots.get(k, {}).values()]
    indexes = _index_by_key(optimizer)
    return [
        slots[indexes[key]]
        for slots in vars(optimizer).values()
        if isinstance(slots, list) and len(slots) == len(indexes)
        for key in keys
        if key in indexes and _is_variable(slots[indexes[key]])
    ]


def _is_variable(value: object) -> bool:
    return backend.variable_path(value) is not None


def _index_by_key(optimizer: Optimizer) -> dict[str, int]:
    """Returns the index of each variable that an optimizer was built for.

    The keys are the unique ids of the variables.
    """
    if hasattr(optimizer, "_slots"):
        return {key: index for index, key in enumerate(optimizer._slots)}
    return dict(getattr(optimizer, "_index_dict", {}))
