"""Compares what a function has done on parts of a batch and on the whole.

Gradients must be those of the whole. For each value that the function returns,
and for each variable that it changes, there must be one of the `row_semantics`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Variable
from keras_ring.core import arrays, reduce_ops
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError
from keras_ring.keras.backends import backend
from keras_ring.unchanged import (
    gradient_difference,
    metric_registry,
    row_semantics,
    script,
)
from keras_ring.unchanged.advice import IN_LOOP, REASONS
from keras_ring.unchanged.row_semantics import Way, Ways

Arrays = list[npt.NDArray[Any]]
# Variables of `keras.random.SeedGenerator` and `tf.random.Generator`.
_SEEDS = ("seed_generator_state", "StateVar")


class Found(NamedTuple):
    """The findings about a function.

    Args:
        ways: List of the possible ways of each value that it returns. There
            are two, one of them a sum, if the value was zero.
        sums: List of the variables in which ranks have parts of a sum.
        state: List of all variables that it reads or writes.
    """

    ways: list[Ways]
    sums: list[Variable]
    state: list[Variable]

    def with_ways_of(self, before: Found) -> Found:
        """Returns a copy with the ways that were found before, if they hold."""
        kept = [
            earlier if len(earlier) == 1 and earlier <= found else found
            for earlier, found in zip(before.ways, self.ways, strict=True)
        ]
        return self._replace(ways=kept)

    def is_like(self, other: Found) -> bool:
        """Returns whether the ways and the sets of variables are the same."""
        return self.ways == other.ways and all(
            {id(each) for each in mine} == {id(each) for each in theirs}
            for mine, theirs in (
                (self.sums, other.sums),
                (self.state, other.state),
            )
        )


class Seen(NamedTuple):
    """The effects of one run of a function.

    Args:
        returned: List of arrays, the values that it has returned.
        updates: The gradients, with the paths of their variables.
        state: List of arrays, the values of its variables afterwards.
    """

    returned: Arrays
    updates: gradient_difference.Updates
    state: Arrays


def is_seed(variable: Variable) -> bool:
    """Returns whether a variable is the state of a random generator."""
    return str(backend.variable_path(variable)).rpartition("/")[2] in _SEEDS


class Comparison:
    """A comparison of runs of a function on parts and on the whole.

    All ranks must call its methods, in the same order.

    Args:
        name: String, the name of the function in the program.
        state: List of all variables that it reads or writes.
        is_tensor: List of booleans, for each value that it returns whether it
            is a tensor.
        rows: Tuple of two integers, the rows of the batch and of this rank's
            part.
        num_bytes: Integer, the bytes of the smallest type of the computation.
    """

    def __init__(
        self,
        name: str,
        state: list[Variable],
        is_tensor: list[bool],
        rows: tuple[int, int],
        num_bytes: int,
    ) -> None:
        self._name = name
        self._state = state
        self._is_tensor = is_tensor
        self._rows, self._own_rows = rows
        self._num_bytes = num_bytes

    def is_same(self, one: Seen, other: Seen) -> bool:
        """Returns whether two runs have done the same, on all ranks."""
        name = f"auto/{self._name}"
        found = gradient_difference.difference(
            one.updates, other.updates, f"{name}/again", self._num_bytes
        )
        same = row_semantics.possible(
            one.returned,
            other.returned,
            self._rows,
            self._own_rows,
            f"{name}/again",
            self._num_bytes,
        )
        return found is None and all(Way.SAME in each for each in same)

    def require_gradients(self, whole: Seen, part: Seen) -> None:
        """Raises an error on all ranks if gradients differ from the whole's."""
        name = f"auto/{self._name}/gradients"
        averages = gradient_difference.averaged(part.updates, name)
        found = gradient_difference.difference(
            whole.updates, averages, f"{name}/apart", self._num_bytes
        )
        if found is None:
            return
        raise AutoError(
            f"{script.line()} trains by {self._name!r}, which does not give "
            f"the gradients of the whole batch on parts of it: {found}. "
            f"{REASONS}{IN_LOOP}"
        )

    def ways_of_results(
        self, whole: tuple[Seen, Seen], parts: tuple[Seen, Seen]
    ) -> list[Ways]:
        """Returns the possible ways of each value that the function returns.

        Args:
            whole: Tuple of two successive runs on the whole batch.
            parts: Tuple of two successive runs on this rank's part.

        Raises:
            AutoError: On all ranks, if there is none for a value.
        """
        found = [
            row_semantics.possible(
                w.returned,
                p.returned,
                self._rows,
                self._own_rows,
                f"auto/{self._name}/results",
                self._num_bytes,
            )
            for w, p in zip(whole, parts, strict=True)
        ]
        decided = []
        for index, both in enumerate(zip(*found, strict=True)):
            value = whole[1].returned[index]
            possible = _preferred(both[0] & both[1], value)
            if not self._is_tensor[index]:
                possible = frozenset({Way.SAME})
            if not possible:
                raise AutoError(
                    f"{script.line()} trains by {self._name!r}, which returns "
                    f"something (at index {index}, of shape {value.shape}) "
                    "that is neither a mean nor a sum over the rows of its "
                    "batch, nor one value for each, so that of the parts does "
                    "not make that of the whole. The result of a metric is "
                    "one: ask for `metric.result()` outside of the function."
                )
            decided.append(possible)
        return decided

    def sums(
        self,
        begin: Arrays,
        whole: tuple[Seen, Seen],
        parts: tuple[Seen, Seen],
    ) -> list[Variable]:
        """Returns the variables in which ranks have parts of a sum.

        Args:
            begin: List of arrays, the values of variables before the runs.
            whole: Tuple of two successive runs on the whole batch.
            parts: Tuple of two successive runs on this rank's part.

        Raises:
            AutoError: On all ranks, if a variable changes in another way.
        """
        before = begin, whole[0].state
        changed = self._changed(begin, whole, parts)
        name = f"auto/{self._name}/state"

        def ways_of(whole: Arrays, part: Arrays, name: str) -> list[Ways]:
            return row_semantics.possible(
                [whole[index] for index in changed],
                [part[index] for index in changed],
                self._rows,
                self._own_rows,
                name,
                self._num_bytes,
            )

        values, changes = [], []
        for start, w, p in zip(before, whole, parts, strict=True):
            values.append(ways_of(w.state, p.state, name))
            changes.append(
                ways_of(
                    _minus(w.state, start),
                    _minus(p.state, start),
                    f"{name}/changes",
                )
            )
        of_metrics = _counted_by_metrics()
        # A metric that has counted nothing yet may do so later.
        found = [
            variable
            for index, variable in enumerate(self._state)
            if index not in changed and id(variable) in of_metrics
        ]
        for number, index in enumerate(changed):
            variable = self._state[index]
            is_sum = all(Way.SUM in each[number] for each in changes)
            is_same = all(Way.SAME in each[number] for each in values)
            if is_sum and (id(variable) in of_metrics or not is_same):
                found.append(variable)
            elif not is_same:
                raise AutoError(
                    f"{script.line()} trains by {self._name!r}, which changes "
                    f"the variable {backend.variable_path(variable)!r} in a "
                    "way that does not come together from parts of a batch: "
                    "neither is "
                    "it the same on each, nor does it add up. Change it "
                    "outside of the function, or train by explicit lines: "
                    "`kr.data.shard`, `kr.DistributedGradientTape`."
                )
        return found

    def _changed(
        self,
        begin: Arrays,
        whole: tuple[Seen, Seen],
        parts: tuple[Seen, Seen],
    ) -> list[int]:
        """Returns the indices of variables that change on any rank."""
        is_changed = [
            not is_seed(variable)
            and not all(
                is_equal(value, now)
                for value, now in (
                    (begin[index], whole[0].state[index]),
                    (begin[index], parts[0].state[index]),
                    (whole[0].state[index], whole[1].state[index]),
                    (whole[0].state[index], parts[1].state[index]),
                )
            )
            for index, variable in enumerate(self._state)
        ]
        on_any = arrays.allreduce(
            np.array([*is_changed, False], np.uint8),
            reduce_ops.Max,
            name=f"auto/{self._name}/state/changed",
            process_set=global_process_set,
        )
        return [int(index) for index in np.flatnonzero(on_any)]

    def supposed(self, whole: Arrays, parts: Arrays) -> Found:
        """Returns the likely findings, if runs cannot be compared."""
        found = []
        for of_whole, part, is_tensor in zip(
            whole, parts, self._is_tensor, strict=True
        ):
            if not is_tensor:
                found.append(frozenset({Way.SAME}))
            elif of_whole.shape != part.shape:
                found.append(frozenset({Way.ROWS}))
            elif of_whole.dtype.kind == "f":
                found.append(frozenset({Way.MEAN}))
            else:
                found.append(frozenset({Way.SAME}))
        of_metrics = _counted_by_metrics()
        sums = [each for each in self._state if id(each) in of_metrics]
        return Found(found, sums, self._state)


def _counted_by_metrics() -> set[int]:
    """Returns the ids of the variables of metrics that are sums."""
    return {id(backend.storage(each)) for each in metric_registry.sums()}


def _preferred(possible: Ways, value: npt.NDArray[Any]) -> Ways:
    """Returns the way to take, or two ways if a value of zero does not tell."""
    is_float = value.dtype.kind not in "iubOSU"
    if row_semantics.is_zero(value) and {Way.SUM, Way.SAME} <= possible:
        return frozenset({Way.MEAN if is_float else Way.SAME, Way.SUM})
    order = (
        (Way.MEAN, Way.ROWS, Way.SUM, Way.SAME)
        if is_float
        else (Way.SAME, Way.ROWS, Way.SUM)
    )
    return frozenset([way for way in order if way in possible][:1])


def is_equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Returns whether arrays are equal, where NaNs are equal, too."""
    is_float = one.dtype.kind == "f"
    return one is other or np.array_equal(one, other, equal_nan=is_float)


def _minus(values: Arrays, before: Arrays) -> Arrays:
    return [
        value != start
        if value.dtype.kind == "b"
        else value - start
        if value.dtype.kind in "iufc"
        else value
        for value, start in zip(values, before, strict=True)
    ]
