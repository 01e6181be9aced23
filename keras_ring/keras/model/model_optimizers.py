"""The optimizers that train a model: the compiled one, and other attributes.

A GAN has two optimizers, and a third, unused one that `compile` makes. The
variables of an optimizer are made for the weights that it trains. A single
optimizer trains all trainable weights of the model. If there are several, an
optimizer is not built until it is used, or until another rank or a checkpoint
tells which weights it trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from keras_ring._typing import Model, Optimizer, Variable
from keras_ring.keras.lanes import compat
from keras_ring.keras.lanes.loss_scaling import inner_optimizer
from keras_ring.keras.optimizer.local_variables import local_variables_of

# By name of an optimizer: the indices, among the variables of the model, of
# those that it was built for.
TrainedIndexes = dict[str, list[int]]

_COMPILED = "optimizer"


def optimizers_of(
    model: Model, more: Iterable[Optimizer] = ()
) -> dict[str, Optimizer]:
    """Returns the optimizers of a model by name, in a fixed order.

    Args:
        model: A `keras.Model`.
        more: Optimizers that train it and are not attributes of it.
    """
    attributes = sorted(vars(model).items(), key=lambda named: named[0])
    found: dict[str, object] = {
        _COMPILED: getattr(model, "optimizer", None),
        **dict(attributes),
    }
    for name, value in attributes:
        # TensorFlow tracks the other attributes under `_self_...` names.
        if not name.startswith("_self_"):
            found.update(_members(name, value))
    found.update(_members("given", list(more)))
    optimizers: dict[str, Optimizer] = {}
    seen: set[int] = set()
    for name, each in found.items():
        if compat.is_optimizer(each) and id(each) not in seen:
            optimizers[name] = each
            # An inner optimizer is a part of the outer one.
            seen |= {id(each), id(inner_optimizer(each))}
    return optimizers


def build_only_one(model: Model, optimizers: Mapping[str, Optimizer]) -> None:
    """Makes the variables of the optimizer if the model has only one."""
    if list(optimizers) == [_COMPILED]:
        compat.built_optimizer(optimizers[_COMPILED], model.trainable_variables)


def trained_indexes(
    model: Model, optimizers: Mapping[str, Optimizer]
) -> TrainedIndexes:
    """Returns the indices of the variables that optimizers were built for."""
    variables = model.variables
    position = {id(variable): i for i, variable in enumerate(variables)}
    return {
        name: [position[id(each)] for each in trained]
        for name, optimizer in optimizers.items()
        if (trained := compat.trained_variables(optimizer, variables))
    }


def build_for(
    model: Model, optimizers: Mapping[str, Optimizer], wanted: TrainedIndexes
) -> None:
    """Makes the variables of optimizers that are not built on this rank.

    Args:
        model: A `keras.Model`.
        optimizers: Result of `optimizers_of`.
        wanted: Result of `trained_indexes` on another rank or in an earlier
            run.
    """
    present = trained_indexes(model, optimizers)
    variables = model.variables
    for name, positions in wanted.items():
        fits = name in optimizers and max(positions) < len(variables)
        if name not in present and fits:
            compat.built_optimizer(
                optimizers[name], [variables[i] for i in positions]
            )


def merged(of_ranks: Iterable[TrainedIndexes]) -> TrainedIndexes:
    """Returns for each name the indices of the lowest rank that has any."""
    result: TrainedIndexes = {}
    for of_rank in of_ranks:
        result = {**of_rank, **result}
    return dict(sorted(result.items()))


def is_local(variable: Variable, optimizers: Mapping[str, Optimizer]) -> bool:
    """Returns whether a variable is local to each rank for an optimizer."""
    return any(
        variable in local_variables_of(each) for each in optimizers.values()
    )


def local_slots(
    model: Model, optimizers: Mapping[str, Optimizer]
) -> list[Variable]:
    """Returns the optimizer variables that belong to local variables."""
    return [
        slot
        for optimizer in optimizers.values()
        if local_variables_of(optimizer)
        for slot in compat.slots_of(
            optimizer,
            [v for v in model.variables if v in local_variables_of(optimizer)],
        )
    ]


def _members(name: str, value: object) -> dict[str, object]:
    if isinstance(value, Mapping):
        return {f"{name}/{key}": each for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"{name}/{i}": each for i, each in enumerate(value)}
    return {}
