"""The optimizers that train a model: the compiled one, and attributes of it.

A GAN has two, and a third one that `compile` makes and nobody uses. The
variables of an optimizer are made for the weights that it is used with. For
one alone these are known: all that the model trains. Of several, each is left
as it is until it was used, or until it is known, from another rank or from a
checkpoint, what it was used with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from keras_ring._keras import compat
from keras_ring._keras.loss_scaling import inner_optimizer
from keras_ring._training.local_variables import local_variables_of
from keras_ring._typing import Model, Optimizer, Variable

# By the name of an optimizer: the places, among the variables of the model,
# of those that it was built for.
Places = dict[str, list[int]]

_COMPILED = "optimizer"


def optimizers_of(
    model: Model, more: Iterable[Optimizer] = ()
) -> dict[str, Optimizer]:
    """Returns the optimizers of a model by name, in a fixed order.

    Args:
        model: A `keras.Model`.
        more: Optimizers that train it and are not among its attributes.
    """
    attributes = sorted(vars(model).items(), key=lambda named: named[0])
    found: dict[str, object] = {
        _COMPILED: getattr(model, "optimizer", None),
        **dict(attributes),
    }
    for name, value in attributes:
        # Where TensorFlow notes down all attributes.
        if not name.startswith("_self_"):
            found.update(_members(name, value))
    found.update(_members("given", list(more)))
    optimizers: dict[str, Optimizer] = {}
    seen: set[int] = set()
    for name, each in found.items():
        if compat.is_optimizer(each) and id(each) not in seen:
            optimizers[name] = each
            # What is inside of another one is a part of that.
            seen |= {id(each), id(inner_optimizer(each))}
    return optimizers


def build_only_one(model: Model, optimizers: Mapping[str, Optimizer]) -> None:
    """Makes the variables of the optimizer of a model that has one alone."""
    if list(optimizers) == [_COMPILED]:
        compat.built_optimizer(optimizers[_COMPILED], model.trainable_variables)


def places(model: Model, optimizers: Mapping[str, Optimizer]) -> Places:
    """Returns which variables of a model optimizers were built for."""
    variables = model.variables
    position = {id(variable): i for i, variable in enumerate(variables)}
    return {
        name: [position[id(each)] for each in trained]
        for name, optimizer in optimizers.items()
        if (trained := compat.trained_variables(optimizer, variables))
    }


def build_for(
    model: Model, optimizers: Mapping[str, Optimizer], wanted: Places
) -> None:
    """Makes the variables of optimizers that were not used here yet.

    Args:
        model: A `keras.Model`.
        optimizers: What `optimizers_of` returned.
        wanted: What `places` returned, elsewhere, for the same program.
    """
    present = places(model, optimizers)
    variables = model.variables
    for name, positions in wanted.items():
        fits = name in optimizers and max(positions) < len(variables)
        if name not in present and fits:
            compat.built_optimizer(
                optimizers[name], [variables[i] for i in positions]
            )


def merged(of_ranks: Iterable[Places]) -> Places:
    """Returns the places of the lowest rank that has them, for each name."""
    result: Places = {}
    for of_rank in of_ranks:
        result = {**of_rank, **result}
    return dict(sorted(result.items()))


def is_local(variable: Variable, optimizers: Mapping[str, Optimizer]) -> bool:
    """Whether one of the optimizers leaves a variable to each rank."""
    return any(
        variable in local_variables_of(each) for each in optimizers.values()
    )


def local_slots(
    model: Model, optimizers: Mapping[str, Optimizer]
) -> list[Variable]:
    """Returns what optimizers remember of the variables of each rank's own."""
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
