"""Finds out how steps on parts of a batch make the step on the whole.

The function is compiled in two ways, on the whole batch and on parts of unequal
numbers of rows, without its updates and without chance. Each runs twice, one
after the other, as what it returns may depend on what it has counted before.
Gradients have to be those of the whole; for what it returns, and for the
variables that it changes, there has to be one of the `ways`. Afterwards all
variables have the values they had.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_ring._auto import apart, living_metrics, script, update_search, ways
from keras_ring._auto.advice import IN_LOOP, REASONS
from keras_ring._auto.said import say
from keras_ring._auto.ways import Way, Ways
from keras_ring._keras import compat
from keras_ring._keras.steps import steps
from keras_ring._ops import arrays, reduce_ops
from keras_ring._ops.names import variable_path
from keras_ring._runtime import topology
from keras_ring._runtime.process_sets import global_process_set
from keras_ring._training.whole_batch import PartStep, Step, WholeStep
from keras_ring._typing import Structure, Tensor, Variable
from keras_ring.errors import AutoError

Run = Callable[[Step, Sequence[Any]], Structure]
Arrays = list[npt.NDArray[Any]]
# Of `keras.random.SeedGenerator` and `tf.random.Generator`.
_SEEDS = ("seed_generator_state", "StateVar")


class Found(NamedTuple):
    """What was found out of a function.

    Args:
        ways: For each value that it returns, which ways lead from parts to the
            whole. Both a mean and a sum, if it was zero.
        sums: The variables that count what a rank has seen.
        state: All the variables that it reads or writes.
    """

    ways: list[Ways]
    sums: list[Variable]
    state: list[Variable]

    def with_ways_of(self, before: Found) -> Found:
        """Returns it with the ways that were found before, if they hold."""
        kept = [
            earlier if len(earlier) == 1 and earlier <= found else found
            for earlier, found in zip(before.ways, self.ways, strict=True)
        ]
        return self._replace(ways=kept)

    def is_like(self, other: Found) -> bool:
        """Whether as much was found out before, of the same variables."""
        return self.ways == other.ways and all(
            {id(each) for each in mine} == {id(each) for each in theirs}
            for mine, theirs in (
                (self.sums, other.sums),
                (self.state, other.state),
            )
        )


class _Seen(NamedTuple):
    """What a function did when it ran once."""

    returned: Arrays
    updates: apart.Updates
    state: Arrays


def is_seed(variable: Variable) -> bool:
    """Whether a variable is the state of a generator of random numbers."""
    return str(variable_path(variable)).rpartition("/")[2] in _SEEDS


class Checker:
    """Compares a function on parts of a batch with it on the whole.

    Args:
        name: String, what the function is called.
        run: Runs it in a step.
        is_data: Which of what it is called with are the batch.
    """

    def __init__(self, name: str, run: Run, is_data: Sequence[bool]) -> None:
        # Numbers for each row are those of the whole only in the order of its
        # rows; and constants may be where a function has no derivative.
        self._ways = [
            _Check(name, run, is_data, by_rows) for by_rows in (True, False)
        ]

    def check(
        self,
        leaves: list[Any],
        rows: int,
        share: Callable[[list[Variable]], None],
    ) -> Found:
        """Compares the function on one batch. All ranks must call this.

        Args:
            leaves: What it is called with.
            rows: Integer, of the batch, at least one for each rank.
            share: Gives all ranks the values that variables have on one.

        Raises:
            AutoError: On all ranks, if parts do not make the whole.
        """
        failure: AutoError | None = None
        for way in list(self._ways):
            try:
                found = way.run(leaves, rows, share)
            except AutoError as error:
                failure = error
                continue
            # The next batch begins with what tells.
            self._ways.sort(key=lambda each: each is not way)
            return found
        if failure is None:
            raise AssertionError("There is a way to compare.")
        # Once, and not while another is handled.
        raise failure.with_traceback(None) from failure.__cause__


class _Check:
    def __init__(
        self, name: str, run: Run, is_data: Sequence[bool], by_rows: bool
    ) -> None:
        self._name = name
        self._by_rows = by_rows
        self._run = run
        self._leaves: list[Any] = []
        self._rows = self._own_rows = 0
        everyone = global_process_set

        def whole(data: Structure) -> Step:
            del data
            return WholeStep(everyone, [])

        def part(data: Structure) -> Step:
            weights = apart.unequal_weights(self._rows)
            return PartStep(data, everyone, [], weights)

        self._is_data = is_data
        self._whole = self._compiled(whole)
        self._part = self._compiled(part)
        # What each of them updates.
        self._paths: dict[int, list[str]] = {}
        # Of what it returns.
        self._is_tensor: list[bool] = []
        self._state: list[Variable] = []
        # Of the smallest type that numbers are computed in, if not all.
        self._num_bytes = 8

    def run(
        self,
        leaves: list[Any],
        rows: int,
        share: Callable[[list[Variable]], None],
    ) -> Found:
        self._leaves, self._rows = leaves, rows
        own = apart.unequal_weights(rows) or [1] * topology.size()
        rank, total = topology.rank(), sum(own)
        before = sum(own[:rank])
        self._own_rows = (
            rows * (before + own[rank]) // total - rows * before // total
        )
        self._state = self._variables()
        share(self._state)
        begin = self._values()
        try:
            first = self._seen(self._whole, begin)
            whole = first, self._seen(self._whole, first.state)
            self._restore(begin)
            repeats = self._is_same(first, self._seen(self._whole, begin))
            self._restore(begin)
            first = self._seen(self._part, begin)
            self._restore(whole[0].state)
            parts = first, self._seen(self._part, whole[0].state)
        finally:
            self._restore(begin)
        if not repeats:
            say(
                f"WARNING: step {self._name!r} is not checked, for it draws "
                "random numbers that are not TensorFlow's. Its loss is taken "
                "to be a mean over the rows of a batch"
            )
            return self._supposed(whole[0].returned, parts[0].returned)
        self._require_gradients(whole[0], parts[0])
        found = Found(
            self._ways_of_results(whole, parts),
            self._sums(begin, whole, parts),
            self._state,
        )
        say(
            f"step {self._name!r}: its batches are divided by rows; on parts "
            "it does what it does on the whole (checked on batches 1, 2, 4 "
            "and so on)"
        )
        return found

    def _variables(self) -> list[Variable]:
        variables_of = update_search.variables_of
        whole = variables_of(self._whole, self._leaves, self._name)
        graph = self._whole.get_concrete_function(*self._leaves).graph
        if any(
            output.dtype in (tf.float16, tf.bfloat16)
            for operation in graph.get_operations()
            for output in operation.outputs
        ):
            self._num_bytes = 2
        try:
            part = variables_of(self._part, self._leaves, self._name)
        except (AutoError, tf.errors.OpError):
            raise
        except Exception as error:
            raise AutoError(
                f"{script.line()} trains by {self._name!r}, which does not run "
                f"on a part of the rows of its batch: "
                f"{type(error).__name__}: {_first_line(error)}. Its "
                "arguments of as many rows as the first are divided; give what "
                "is not of the rows as a variable, or train by `fit`, or by "
                "explicit lines: `kr.data.shard`, `kr.DistributedGradientTape`."
            ) from error
        return [*{id(each): each for each in (*whole, *part)}.values()]

    def _compiled(self, make_step: Callable[[Structure], Step]) -> Any:
        def observed(*leaves: Any) -> tuple[list[Tensor], list[Tensor]]:
            step = make_step([*itertools.compress(leaves, self._is_data)])
            place = step.place() if self._by_rows else None
            with steps.without_chance(place), tf.summary.record_if(False):
                returned = self._run(step, leaves)
            updates = [
                (str(variable_path(variable)), tf.convert_to_tensor(gradient))
                for variable, gradient in step.captured or ()
                if gradient is not None
            ]
            self._paths[id(function)] = [path for path, _ in updates]
            return self._as_tensors(returned), [each for _, each in updates]

        function = update_search.compiled(observed)
        return function

    def _as_tensors(self, returned: Structure) -> list[Tensor]:
        leaves = tf.nest.flatten(returned)
        for leaf in leaves:
            if isinstance(
                leaf, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices
            ):
                raise AutoError(
                    f"{script.line()} trains by {self._name!r}, which returns "
                    f"a `tf.{type(leaf).__name__}`, and `--auto` puts none "
                    "together. Return a dense tensor, or nothing."
                )
        # What is `None`, or a number of Python, is so on all ranks.
        self._is_tensor = [tf.is_tensor(each) for each in leaves]
        return [
            each if is_tensor else tf.zeros([])
            for each, is_tensor in zip(leaves, self._is_tensor, strict=True)
        ]

    def _seen(self, function: Any, before: Arrays) -> _Seen:
        returned, gradients = function(*self._leaves)
        return _Seen(
            [np.asarray(each) for each in returned],
            list(zip(self._paths[id(function)], gradients, strict=True)),
            self._values(before),
        )

    def _values(self, before: Arrays | None = None) -> Arrays:
        """Returns the values of all variables.

        Args:
            before: Earlier ones, of which those that are the same are returned
                as they are: most are weights, and need no other copy.
        """
        values = [variable.numpy() for variable in self._state]
        if before is None:
            return [np.array(value) for value in values]
        return [
            earlier if _is_equal(value, earlier) else np.array(value)
            for value, earlier in zip(values, before, strict=True)
        ]

    def _restore(self, values: Arrays) -> None:
        for variable, value in zip(self._state, values, strict=True):
            variable.assign(value)

    def _is_same(self, one: _Seen, other: _Seen) -> bool:
        """Whether it does the same again; the same on all ranks."""
        name = f"auto/{self._name}"
        found = apart.difference(
            one.updates, other.updates, f"{name}/again", self._num_bytes
        )
        same = ways.possible(
            one.returned,
            other.returned,
            self._rows,
            self._own_rows,
            f"{name}/again",
            self._num_bytes,
        )
        return found is None and all(Way.SAME in each for each in same)

    def _require_gradients(self, whole: _Seen, part: _Seen) -> None:
        name = f"auto/{self._name}/gradients"
        averages = apart.averaged(part.updates, name)
        found = apart.difference(
            whole.updates, averages, f"{name}/apart", self._num_bytes
        )
        if found is None:
            return
        raise AutoError(
            f"{script.line()} trains by {self._name!r}, which does not give "
            f"the gradients of the whole batch on parts of it: {found}. "
            f"{REASONS}{IN_LOOP}"
        )

    def _ways_of_results(
        self, whole: tuple[_Seen, _Seen], parts: tuple[_Seen, _Seen]
    ) -> list[Ways]:
        found = [
            ways.possible(
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
        for place, both in enumerate(zip(*found, strict=True)):
            value = whole[1].returned[place]
            possible = _preferred(both[0] & both[1], value)
            if not self._is_tensor[place]:
                possible = frozenset({Way.SAME})
            if not possible:
                raise AutoError(
                    f"{script.line()} trains by {self._name!r}, which returns "
                    f"something (at place {place}, of shape {value.shape}) "
                    "that is neither a mean nor a sum over the rows of its "
                    "batch, nor one value for each, so that of the parts does "
                    "not make that of the whole. The result of a metric is "
                    "one: ask for `metric.result()` outside of the function."
                )
            decided.append(possible)
        return decided

    def _sums(
        self,
        begin: Arrays,
        whole: tuple[_Seen, _Seen],
        parts: tuple[_Seen, _Seen],
    ) -> list[Variable]:
        """Returns the variables of which ranks have parts of a sum."""
        before = begin, whole[0].state
        changed = self._changed(begin, whole, parts)
        name = f"auto/{self._name}/state"

        def ways_of(whole: Arrays, part: Arrays, name: str) -> list[Ways]:
            return ways.possible(
                [whole[place] for place in changed],
                [part[place] for place in changed],
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
        # What has counted nothing yet may do so later.
        found = [
            variable
            for place, variable in enumerate(self._state)
            if place not in changed and id(variable) in of_metrics
        ]
        for number, place in enumerate(changed):
            variable = self._state[place]
            is_sum = all(Way.SUM in each[number] for each in changes)
            is_same = all(Way.SAME in each[number] for each in values)
            if is_sum and (id(variable) in of_metrics or not is_same):
                found.append(variable)
            elif not is_same:
                raise AutoError(
                    f"{script.line()} trains by {self._name!r}, which changes "
                    f"the variable {variable_path(variable)!r} in a way that "
                    "does not come together from parts of a batch: neither is "
                    "it the same on each, nor does it add up. Change it "
                    "outside of the function, or train by explicit lines: "
                    "`kr.data.shard`, `kr.DistributedGradientTape`."
                )
        return found

    def _changed(
        self,
        begin: Arrays,
        whole: tuple[_Seen, _Seen],
        parts: tuple[_Seen, _Seen],
    ) -> list[int]:
        """Returns the places of variables that change, on any rank."""
        is_changed = [
            not is_seed(variable)
            and not all(
                _is_equal(value, now)
                for value, now in (
                    (begin[place], whole[0].state[place]),
                    (begin[place], parts[0].state[place]),
                    (whole[0].state[place], whole[1].state[place]),
                    (whole[0].state[place], parts[1].state[place]),
                )
            )
            for place, variable in enumerate(self._state)
        ]
        on_any = arrays.reduced(
            np.array([*is_changed, False], np.uint8),
            reduce_ops.Max,
            f"auto/{self._name}/state/changed",
            global_process_set,
        )
        return [int(place) for place in np.flatnonzero(on_any)]

    def _supposed(self, whole: Arrays, parts: Arrays) -> Found:
        """What is likely, where numbers tell nothing."""
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
    """Returns the ids of the variables that count what metrics have seen."""
    return {id(compat.tf_variable(each)) for each in living_metrics.sums()}


def _preferred(possible: Ways, value: npt.NDArray[Any]) -> Ways:
    """Returns the way to take; two, if a value of zero does not tell."""
    is_float = value.dtype.kind not in "iubOSU"
    if ways.is_zero(value) and {Way.SUM, Way.SAME} <= possible:
        return frozenset({Way.MEAN if is_float else Way.SAME, Way.SUM})
    order = (
        (Way.MEAN, Way.ROWS, Way.SUM, Way.SAME)
        if is_float
        else (Way.SAME, Way.ROWS, Way.SUM)
    )
    return frozenset([way for way in order if way in possible][:1])


def _is_equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
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


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else ""
