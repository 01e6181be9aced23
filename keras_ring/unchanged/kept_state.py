"""The state that layers, losses and steps keep without training it.

Examples are a running mean, a counter, or a codebook that follows its inputs. A
step assigns such state, and from a part of a batch it computes another value
than from the whole. When steps are compared (`step_check`), it is found out for
each assignment how the values of parts make that of the whole. From then on
ranks combine the values that they assign (`state_semantics`), within the step.
It is an error if the values cannot be combined, or if ranks have different
state after all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_ring._typing import Model, Variable
from keras_ring.core import arrays, reduce_ops
from keras_ring.core.notices import say
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import ConsistencyError
from keras_ring.keras.agreement.difference import first_difference
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat
from keras_ring.keras.model.variables import share
from keras_ring.tensorflow import gathers
from keras_ring.unchanged import (
    recorded_state,
    script,
    state_advice,
    state_semantics,
)
from keras_ring.unchanged.custom_step_semantics import is_equal
from keras_ring.unchanged.recorded_state import Array, Assigned, Recorder
from keras_ring.unchanged.state_semantics import Possible, Values, Way

_OF_MODEL = "_keras_ring_kept_state"
_NAME = "auto/state"
# By the bytes of a type: the rounding of the same sum in another order,
# relative to the largest value.
_ROUNDING = {2: 1e-2, 4: 1e-5, 8: 1e-12}


class KeptState:
    """The state that the steps of one model keep, as far as it is known.

    Args:
        model: A `keras.Model`.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        # Whether a step was examined before the first one has trained.
        self.is_searched = False
        # The variables that are assigned, and by the same keys the possible
        # ways of each of their assignments, in the order of the step.
        self._variables: dict[int, Variable] = {}
        self._ways: dict[int, list[Possible]] = {}
        # Variables of which batches have told nothing, with their values then.
        self._undecided: list[Assigned] = []

    def narrow(
        self,
        whole: Recorder,
        part: Recorder,
        share: float,
        num_bytes: int,
        number: int,
    ) -> str | None:
        """Narrows the possible ways by one batch and its parts.

        All ranks must call this.

        Args:
            whole: The `Recorder` of a step on the batch.
            part: The `Recorder` of the step on this rank's part.
            share: Float, the fraction of the batch's rows in this part.
            num_bytes: Integer, the bytes of the smallest type of the
                computation.
            number: Integer, the number of the batch.

        Returns:
            String, the error if no way is possible, or `None`. There is one on
            all ranks or on none.
        """
        if not (whole.assigned or whole.changed or self._ways):
            if not _is_on_any(bool(part.assigned or part.changed)):
                return None
        if _is_on_any(not part.is_like(whole)):
            return state_advice.of_other_assignments(self._model, number)
        problem = self._problem_of_changes(whole, part, number)
        if problem is not None:
            return problem
        values = [
            Values(w.before, p.value, w.value)
            for w, p in zip(whole.assigned, part.assigned, strict=True)
        ]
        found: dict[int, list[Possible]] = {}
        if values:
            of_each = state_semantics.possible(values, share, num_bytes, _NAME)
            for index, (each, ways) in enumerate(
                zip(whole.assigned, of_each, strict=True)
            ):
                of_variable = found.setdefault(id(each.variable), [])
                known = self._ways.get(id(each.variable), [])
                if len(of_variable) < len(known):
                    ways = state_semantics.both(known[len(of_variable)], ways)
                if not ways:
                    return state_advice.of_no_way(
                        self._model, each.variable, values[index], number
                    )
                of_variable.append(ways)
        self._ways.update(found)
        self._variables.update(
            (id(each.variable), each.variable) for each in whole.assigned
        )
        self._note_undecided()
        return None

    def to_combine(self) -> list[tuple[Variable, list[Possible]]]:
        """Returns the variables to which ranks assign different values.

        Returns:
            A list of pairs, a variable and the possible ways of each of its
            assignments.
        """
        return [
            (self._variables[key], ways)
            for key, ways in self._ways.items()
            if {state_semantics.preferred(each) for each in ways} - _SAME
        ]

    def choices(self) -> list[tuple[int, Way, float | None]]:
        """Returns the way of each assignment, on which traced steps depend.

        Returns:
            A list of tuples: the id of a variable, the way, and for a sum the
            share that is left of it, if known.
        """
        found = []
        for key, ways in self._ways.items():
            for each in ways:
                way = state_semantics.preferred(each)
                left = each[way]
                found.append((key, way, None if left is None else left.share))
        return found

    def _shown(self) -> list[str]:
        """Returns a text for each variable and way that ranks combine."""
        shown = []
        for variable, ways in self.to_combine():
            of_all = {state_semantics.preferred(each) for each in ways}
            path = state_advice.shown(self._model, variable)
            shown += [
                f"{path} {way.value}" for way in Way if way in of_all - _SAME
            ]
        return shown

    def advice(self) -> str:
        """Returns advice for an error about gradients, or an empty string."""
        shown = self._shown()
        if not shown:
            return ""
        return (
            f"It keeps state ({'; '.join(shown)}), which ranks put together "
            "where it is assigned: what it computes of it afterwards has to "
            "come from the variable, and not from what was assigned. "
        )

    def say_ways(self) -> None:
        """Prints which state ranks combine, if any."""
        shown = self._shown()
        if shown:
            location = script.location()
            say(
                f"what the step of model {self._model.name!r}{location} keeps "
                f"is that of the whole batch: {'; '.join(shown)}",
                location=location,
            )

    @property
    def is_undecided(self) -> bool:
        """True if batches have told nothing of some variable."""
        return bool(self._undecided)

    def has_told(self) -> bool:
        """Returns whether an undecided variable has changed on any rank.

        If so, the next batch may tell more. All ranks must call this.
        """
        return bool(self._undecided) and _is_on_any(
            not all(
                is_equal(each.variable.numpy(), each.value)
                for each in self._undecided
            )
        )

    def _note_undecided(self) -> None:
        self._undecided = [
            Assigned(variable, value, value)
            for key, variable in self._variables.items()
            if any(map(state_semantics.is_undecided, self._ways[key]))
            for value in [np.array(variable.numpy())]
        ]

    def _problem_of_changes(
        self, whole: Recorder, part: Recorder, number: int
    ) -> str | None:
        """Returns the error for a variable that is changed but not assigned.

        Returns:
            String, or `None` if parts change such variables as the whole does.
        """
        on_whole = {id(each.variable): each for each in whole.changed}
        variables = [
            variable
            for each in self._model.variables
            for variable in [backend.storage(each)]
            if not getattr(each, "trainable", False)
        ]
        of_part = {id(each.variable): each for each in part.changed}
        wrong = np.zeros(len(variables) + 1)
        for index, variable in enumerate(variables):
            w, p = on_whole.get(id(variable)), of_part.get(id(variable))
            if w is None and p is None:
                continue
            wrong[index] = w is None or p is None or not _is_near(w, p)
        wrong = arrays.allreduce(
            wrong,
            reduce_ops.Max,
            name=f"{_NAME}/changed",
            process_set=global_process_set,
        )
        if not wrong.any():
            return None
        variable = variables[int(np.argmax(wrong))]
        return state_advice.of_change(self._model, variable, number)

    def require_same(self, when: str) -> None:
        """Raises an error if ranks have different state.

        All ranks must call this. If the state differs by rounding alone, all
        ranks get that of rank 0.

        Args:
            when: String, the time for the error, such as "After epoch 3".

        Raises:
            ConsistencyError: On all ranks, if the state differs.
        """
        others = recorded_state.ids_of_others(self._model)
        found = {
            id(backend.storage(each)): each
            for each in self._model.variables
            if not getattr(each, "trainable", False)
        }
        found = {**self._variables, **found}
        variables = [
            variable
            for key, variable in found.items()
            if key not in others
            and recorded_state.is_number(backend.storage(variable))
        ]
        apart = first_difference(variables, f"{_NAME}/same", global_process_set)
        if apart is None:
            return
        if not apart.counts and _are_near(variables):
            share(variables, 0, global_process_set, [])
            return
        raise ConsistencyError(
            state_advice.of_difference(self._model, when, apart)
        )


_SAME = frozenset([Way.SAME])


def of(model: Model) -> KeptState:
    """Returns the `KeptState` of a model, which is made if it has none."""
    found = vars(model).get(_OF_MODEL)
    if found is None:
        found = KeptState(model)
        # Bypasses the model's own `__setattr__`, which tracks attributes.
        object.__setattr__(model, _OF_MODEL, found)
    kept: KeptState = found
    return kept


def is_repeated(one: Recorder, other: Recorder) -> bool:
    """Returns whether two runs have assigned the same values, on all ranks.

    All ranks must call this.

    Args:
        one: The `Recorder` of a run.
        other: The `Recorder` of another run of the same step.
    """
    return not _is_on_any(
        not one.is_like(other)
        or not all(
            _is_near(a, b)
            for a, b in zip(one.assigned, other.assigned, strict=True)
        )
    )


def _is_on_any(flag: bool) -> bool:
    found = arrays.allreduce(
        np.array([flag], np.uint8),
        reduce_ops.Max,
        name=f"{_NAME}/any",
        process_set=global_process_set,
    )
    return bool(found[0])


def _is_near(one: Assigned, other: Assigned) -> bool:
    before, *values = (
        each.astype(np.float64) for each in (one.before, one.value, other.value)
    )
    change, other_change = (each - before for each in values)
    return _nearly(change, other_change, one.value.dtype)


def _are_near(variables: Sequence[Variable]) -> bool:
    """Returns whether all ranks have the values of rank 0 up to rounding."""
    values = [np.array(compat.as_numpy(each)) for each in variables]
    of_rank_0 = gathers.broadcast_group(
        [each.astype(np.float64) for each in values], 0, f"{_NAME}/near"
    )
    return not _is_on_any(
        not all(
            _nearly(np.asarray(wanted), value, value.dtype)
            for wanted, value in zip(of_rank_0, values, strict=True)
        )
    )


def _nearly(one: Array, other: Array, dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "iub":
        return bool(np.array_equal(one, other))
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return False
    size = np.max(np.abs(one[finite]), initial=0.0)
    apart = np.max(np.abs(one[finite] - other[finite]), initial=0.0)
    return bool(apart <= _ROUNDING.get(dtype.itemsize, 0.1) * size)
