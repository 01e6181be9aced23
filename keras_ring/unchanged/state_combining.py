"""Combines the values that ranks assign in a step, when they are assigned.

The step then continues with the value that one process would have. This happens
where the step runs or is traced, so a compiled step contains the collectives.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from keras_ring._typing import Model, Tensor, Variable
from keras_ring.errors import AutoError
from keras_ring.keras.backends import backend
from keras_ring.keras.optimizer.whole_batch import Step
from keras_ring.tensorflow import execution
from keras_ring.unchanged import (
    assignments,
    kept_state,
    state_advice,
    state_semantics,
)
from keras_ring.unchanged.state_semantics import Possible


@contextlib.contextmanager
def combining(model: Model, step: Step) -> Iterator[None]:
    """Makes assignments in the context assign the values of one process.

    Args:
        model: A `keras.Model`, whose step runs in the context.
        step: The step, on a part of a batch.

    Raises:
        AutoError: If the step does not assign as when it was examined.
    """
    known = kept_state.of(model).to_combine()
    if not known:
        yield
        return
    combiner = _Combiner(model, step, known)
    with assignments.watched_by(combiner):
        yield
    combiner.require_all()


class _Combiner:
    """A watcher that combines the values that ranks assign in a step.

    Args:
        model: A `keras.Model`.
        step: The step, on a part of a batch.
        known: List of pairs, a variable and the possible ways of each of its
            assignments.
    """

    def __init__(
        self,
        model: Model,
        step: Step,
        known: list[tuple[Variable, list[Possible]]],
    ) -> None:
        self._model = model
        self._step = step
        self._known = known
        self._ways = {id(variable): ways for variable, ways in known}
        self._counts: Counter[int] = Counter()
        self._graph = backend.graph()

    def wants(self, variable: Variable) -> bool:
        """Returns whether ranks assign different values to a variable."""
        return id(variable) in self._ways

    def instead(self, variable: Variable, value: Tensor) -> Tensor:
        """Returns the value that one process would assign."""
        key = id(variable)
        index = self._counts[key]
        self._counts[key] += 1
        if execution.is_in_branch(self._graph) or index >= len(self._ways[key]):
            raise AutoError(state_advice.of_trace(self._model, variable))
        (name,) = backend.unique_names(
            "auto/state", [str(backend.variable_path(variable))]
        )
        return state_semantics.combined(
            self._ways[key][index],
            backend.as_tensor(variable),
            value,
            self._step,
            name,
        )

    def require_all(self) -> None:
        """Raises an error if a variable was not assigned as often as known."""
        for variable, ways in self._known:
            if self._counts[id(variable)] != len(ways):
                raise AutoError(state_advice.of_trace(self._model, variable))
