"""Variables that each rank trains on its own."""

from __future__ import annotations

from collections.abc import Iterable

from keras_ring._typing import Layer, Optimizer, Variable
from keras_ring.keras.backends import backend


class LocalVariables:
    """A set of variables whose gradients are not reduced.

    Args:
        paths: Paths of variables. A copy of an optimizer knows the variables
            of the original by their paths only.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths = frozenset(paths)
        self._variables: list[Variable] = []
        # Layers are kept, because they may have no weights yet.
        self._layers: list[Layer] = []

    def add(self, variable: Variable) -> None:
        """Adds a variable.

        Raises:
            ValueError: If it is not a variable.
        """
        if backend.variable_path(variable) is None:
            raise ValueError(
                "Only a variable can be local to a rank. Received: "
                f"{variable!r}"
            )
        self._variables.append(variable)

    def add_layer(self, layer: Layer) -> None:
        """Adds the weights that a layer trains."""
        self._layers.append(layer)

    def __contains__(self, source: object) -> bool:
        if self._paths and backend.variable_path(source) in self._paths:
            return True
        source = backend.storage(source)
        return any(backend.storage(each) is source for each in self._all())

    def __bool__(self) -> bool:
        return bool(self._paths or self._variables or self._layers)

    def paths(self) -> list[str]:
        """Returns the paths of the variables."""
        return sorted(
            {
                *self._paths,
                *(str(backend.variable_path(each)) for each in self._all()),
            }
        )

    def _all(self) -> list[Variable]:
        return [
            *self._variables,
            *(v for layer in self._layers for v in layer.trainable_variables),
        ]


def local_variables_of(optimizer: Optimizer) -> LocalVariables:
    """Returns the variables that an optimizer leaves to each rank.

    Args:
        optimizer: An optimizer, or `None`.
    """
    while optimizer is not None:
        found = getattr(optimizer, "_local_variables", None)
        if isinstance(found, LocalVariables):
            return found
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return LocalVariables()
