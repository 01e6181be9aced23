"""The assignments of one step, which runs eagerly and is undone.

A step that uses the state it has just assigned computes something else on a
part of a batch than on the whole. So when a part is compared with the whole,
the values of the whole are assigned in place of those of the part, which are
only recorded.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import Model, Tensor, Variable
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat
from keras_ring.unchanged import assignments, metric_registry
from keras_ring.unchanged.custom_step_semantics import is_equal, is_seed

Array = npt.NDArray[Any]


class Assigned(NamedTuple):
    """One assignment.

    Args:
        variable: A `tf.Variable`.
        before: Array, the value that it had.
        value: Array, the value that the step assigns.
    """

    variable: Variable
    before: Array
    value: Array


class Recorder:
    """A record of assignments, which also restores the variables.

    Args:
        model: A `keras.Model`.
        whole: The `Recorder` of the step on the whole batch, whose values are
            assigned in place of those that are recorded. Defaults to `None`.
        begin: The `Recorder` of an earlier run, with whose last values this
            run begins. Defaults to `None`, for the present values.
    """

    def __init__(
        self,
        model: Model,
        whole: Recorder | None = None,
        begin: Recorder | None = None,
    ) -> None:
        self._model = model
        self._begin = [] if begin is None else begin.assigned
        # In the order of the step.
        self.assigned: list[Assigned] = []
        # Changes that were made in another way, found after the step.
        self.changed: list[Assigned] = []
        self._instead: dict[int, list[Array]] = {}
        for each in () if whole is None else whole.assigned:
            values = self._instead.setdefault(id(each.variable), [])
            values.append(each.value)
        self._counts: Counter[int] = Counter()
        self._first: dict[int, tuple[Variable, Array]] = {}
        self._others = ids_of_others(model)

    def wants(self, variable: Variable) -> bool:
        """Returns `True`: all assignments are recorded, to undo them."""
        del variable
        return True

    def instead(self, variable: Variable, value: Tensor) -> Tensor:
        """Records a value and returns the value to assign."""
        if not backend.is_eager():
            # In a function; such changes are found after the step.
            return value
        key = id(variable)
        before = self._note_first(variable)
        if key in self._others or not is_number(variable):
            return value
        self.assigned.append(Assigned(variable, before, np.array(value)))
        index = self._counts[key]
        self._counts[key] += 1
        values = self._instead.get(key, [])
        if index < len(values) and values[index].shape == before.shape:
            return tf.constant(values[index], variable.dtype)
        return value

    def _note_first(self, variable: Variable) -> Array:
        value = np.array(variable.numpy())
        self._first.setdefault(id(variable), (variable, value))
        return value

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Records the assignments in the context, and undoes them."""
        variables = [
            *self._model.variables,
            *compat.metrics_variables(self._model),
            *compat.seed_variables(self._model),
        ]
        kept = [(each, np.array(compat.as_numpy(each))) for each in variables]
        try:
            for variable, _, value in self._begin:
                self._note_first(variable)
                variable.assign(value)
            with assignments.watched_by(self):
                yield
            self._note_changes(kept)
        finally:
            for variable, value in kept:
                compat.assign(variable, value)
            for variable, value in self._first.values():
                variable.assign(value)

    def _note_changes(self, kept: list[tuple[Variable, Array]]) -> None:
        for variable, before in kept:
            found = backend.storage(variable)
            if (
                id(found) in self._first
                or id(found) in self._others
                or getattr(variable, "trainable", False)
                or not is_number(found)
            ):
                continue
            value = np.array(compat.as_numpy(variable))
            if not is_equal(value, before):
                self.changed.append(Assigned(found, before, value))

    def is_like(self, other: Recorder) -> bool:
        """Returns whether the same variables are assigned in the same order.

        The shapes of the values must be the same as well.
        """
        return [_form(each) for each in self.assigned] == [
            _form(each) for each in other.assigned
        ]


def ids_of_others(model: Model) -> set[int]:
    """Returns the ids of variables that are handled elsewhere.

    These are the variables of metrics, and of random generators, which differ
    between ranks.

    Args:
        model: A `keras.Model`.
    """
    others = [
        *compat.metrics_variables(model),
        *metric_registry.variables(),
        *compat.seed_variables(model),
        *filter(is_seed, model.variables),
    ]
    return {id(backend.storage(each)) for each in others}


def is_number(variable: Variable) -> bool:
    """Returns whether a variable has numbers, which ranks can compare."""
    dtype = tf.as_dtype(variable.dtype)
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool)


def _form(assigned: Assigned) -> tuple[int, tuple[int, ...]]:
    return id(assigned.variable), assigned.value.shape
