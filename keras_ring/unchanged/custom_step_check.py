"""Finds out how steps on parts of a batch make the step on the whole.

The function is compiled in two ways, for the whole batch and for parts with
unequal numbers of rows, without its updates and with deterministic numbers in
place of random ones. Each runs twice in succession, because the results may
depend on earlier counts. Gradients must be those of the whole batch. For each
result, and for each variable that the function changes, there must be one of
the `row_semantics` (`custom_step_semantics`). Afterwards all variables are
restored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring._typing import Structure, Tensor, Variable
from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.optimizer.whole_batch import PartStep, Step, WholeStep
from keras_ring.tensorflow.names import variable_path
from keras_ring.unchanged import (
    custom_step_semantics,
    gradient_difference,
    script,
    update_search,
)
from keras_ring.unchanged.advice import summary
from keras_ring.unchanged.custom_step_semantics import (
    Arrays,
    Found,
    Seen,
    is_equal,
)

Run = Callable[[Step, Sequence[Any]], Structure]


class Checker:
    """A comparison of a function on parts of a batch and on the whole.

    Args:
        name: String, the name of the function in the program.
        run: Callable that takes a step and the leaves of the arguments, and
            runs the function in the step.
        is_data: Sequence of booleans, for each leaf of the arguments whether
            it is part of the batch.
    """

    def __init__(self, name: str, run: Run, is_data: Sequence[bool]) -> None:
        # In place of random numbers, numbers by row or constants. The former
        # are those of the whole batch only if rows keep their order; the latter
        # may be at a point where a function has no derivative.
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
            leaves: The leaves of the arguments.
            rows: Integer, the rows of the batch, at least one for each rank.
            share: Callable that gives all ranks the same values of variables.

        Returns:
            A `Found`.

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
            # The next batch is compared in this way first.
            self._ways.sort(key=lambda each: each is not way)
            return found
        if failure is None:
            raise AssertionError("There is a way to compare.")
        # Raised outside of the handler, so that no other error is its context.
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
            weights = gradient_difference.unequal_weights(self._rows)
            return PartStep(data, everyone, [], weights)

        self._is_data = is_data
        self._whole = self._compiled(whole)
        self._part = self._compiled(part)
        # The paths of the variables that each of these functions updates.
        self._paths: dict[int, list[str]] = {}
        # For each result, whether it is a tensor.
        self._is_tensor: list[bool] = []
        self._state: list[Variable] = []
        # The bytes of the smallest type of the computation, 2 or 8.
        self._num_bytes = 8

    def run(
        self,
        leaves: list[Any],
        rows: int,
        share: Callable[[list[Variable]], None],
    ) -> Found:
        self._leaves, self._rows = leaves, rows
        own = gradient_difference.unequal_weights(rows) or [1] * topology.size()
        rank, total = topology.rank(), sum(own)
        before = sum(own[:rank])
        self._own_rows = (
            rows * (before + own[rank]) // total - rows * before // total
        )
        self._state = self._variables()
        share(self._state)
        compared = custom_step_semantics.Comparison(
            self._name,
            self._state,
            self._is_tensor,
            (self._rows, self._own_rows),
            self._num_bytes,
        )
        begin = self._values()
        try:
            first = self._seen(self._whole, begin)
            whole = first, self._seen(self._whole, first.state)
            self._restore(begin)
            repeats = compared.is_same(first, self._seen(self._whole, begin))
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
            return compared.supposed(whole[0].returned, parts[0].returned)
        compared.require_gradients(whole[0], parts[0])
        found = Found(
            compared.ways_of_results(whole, parts),
            compared.sums(begin, whole, parts),
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
                f"{type(error).__name__}: {summary(error)}. Its "
                "arguments of as many rows as the first are divided; give what "
                "is not of the rows as a variable, or train by `fit`, or by "
                "explicit lines: `kr.data.shard`, `kr.DistributedGradientTape`."
            ) from error
        return [*{id(each): each for each in (*whole, *part)}.values()]

    def _compiled(self, make_step: Callable[[Structure], Step]) -> Any:
        def observed(*leaves: Any) -> tuple[list[Tensor], list[Tensor]]:
            step = make_step([*itertools.compress(leaves, self._is_data)])
            rows = step.row_range() if self._by_rows else None
            with steps.without_chance(rows), tf.summary.record_if(False):
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
        # `None` and Python numbers are the same on all ranks.
        self._is_tensor = [tf.is_tensor(each) for each in leaves]
        return [
            each if is_tensor else tf.zeros([])
            for each, is_tensor in zip(leaves, self._is_tensor, strict=True)
        ]

    def _seen(self, function: Any, before: Arrays) -> Seen:
        returned, gradients = function(*self._leaves)
        return Seen(
            [np.asarray(each) for each in returned],
            list(zip(self._paths[id(function)], gradients, strict=True)),
            self._values(before),
        )

    def _values(self, before: Arrays | None = None) -> Arrays:
        """Returns the values of all variables.

        Args:
            before: Earlier values. An array that has not changed is returned
                itself and not copied, as most are weights. Defaults to `None`.
        """
        values = [variable.numpy() for variable in self._state]
        if before is None:
            return [np.array(value) for value in values]
        return [
            earlier if is_equal(value, earlier) else np.array(value)
            for value, earlier in zip(values, before, strict=True)
        ]

    def _restore(self, values: Arrays) -> None:
        for variable, value in zip(self._state, values, strict=True):
            variable.assign(value)
