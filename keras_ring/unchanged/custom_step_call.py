"""A step of a custom loop, on the rows of this rank.

Its results, and the counts in its variables, are combined over all ranks in the
ways that were found on the first batch (`custom_step_check`) and hold on later
ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ring._typing import Structure, Tensor, Variable
from keras_ring.core import reduce_ops, topology
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError, ConsistencyError
from keras_ring.keras.agreement.difference import first_difference
from keras_ring.keras.lanes import compat
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.model.variables import share
from keras_ring.keras.optimizer import weighted_losses, whole_batch
from keras_ring.keras.optimizer.whole_batch import PartStep, Step, WholeStep
from keras_ring.tensorflow import batch_rows, gathers, reductions
from keras_ring.unchanged import (
    batch_digests,
    comparisons,
    custom_step_check,
    custom_step_semantics,
    script,
    update_search,
)
from keras_ring.unchanged.custom_step_semantics import Found
from keras_ring.unchanged.row_semantics import Way


class Call:
    """The calls of a function with one structure of arguments.

    Args:
        function: A function that `tf.function` has made.
        name: String, its name in the program.
        arguments: Tuple of its positional arguments and its keyword arguments.
        is_data: Sequence of booleans, for each leaf of the arguments whether
            it has the rows of the batch.
    """

    def __init__(
        self,
        function: Any,
        name: str,
        arguments: Structure,
        is_data: Sequence[bool],
    ) -> None:
        self._name = name
        self._is_data = is_data
        self._structure = tf.nest.map_structure(lambda _: None, arguments)
        self._dtypes = _dtypes_of(function, arguments)
        self._run_as_written = _converted(function)
        self._jit_compile = jit = function._jit_compile
        self._on_part = update_search.compiled(self._train_on_part, jit)
        self._on_whole = update_search.compiled(self._train_on_whole, jit)
        self._checker = custom_step_check.Checker(name, self._run, is_data)
        self._found: Found | None = None
        self._shared: dict[int, Variable] = {}
        self._digests = batch_digests.StepDigests()
        self._num_calls = 0

    def __call__(self, leaves: list[Any]) -> Any:
        """Runs the step on this rank's part of the given leaves."""
        leaves = self._as_declared(leaves)
        rows = self._rows(leaves)
        if rows < topology.size():
            # Each rank trains on all rows, which gives the same.
            self._begin(self._on_whole, leaves)
            return self._on_whole(*leaves)
        is_first = self._found is None
        if is_first or comparisons.is_due(self._num_calls + 1):
            # Checked again later, because the step may depend on its data.
            self._check(leaves, rows)
        if is_first:
            self._begin(self._on_part, leaves)
        returned, unknown = self._on_part(*leaves)
        returned = self._decided(returned, unknown, leaves, rows)
        self._num_calls += 1
        if comparisons.is_due(self._num_calls):
            self._compare()
        return returned

    def _known(self) -> Found:
        if self._found is None:
            raise AssertionError("A function runs on parts once it is checked.")
        return self._found

    def _rows(self, leaves: list[Any]) -> int:
        counts = {rows_of(each) or 0 for each in self._data_of(leaves)}
        if len(counts) > 1:
            raise AutoError(
                f"{script.line()} calls {self._name!r} with arguments of "
                f"{sorted(counts)} rows, which had as many rows as each other "
                "at first, so they are taken to be parts of one batch. Give "
                "what is not of the rows in another way, as a variable."
            )
        return counts.pop()

    def _as_declared(self, leaves: list[Any]) -> list[Any]:
        return [
            leaf
            if dtype is None or isinstance(leaf, tf.Tensor)
            else tf.convert_to_tensor(leaf, dtype)
            for leaf, dtype in zip(leaves, self._dtypes, strict=True)
        ]

    def _check(self, leaves: list[Any], rows: int) -> None:
        """Finds out how parts make the whole, if ranks have read the same."""
        self._digests.note(self._data_of(leaves))
        self._digests.require_same(f"auto/{self._name}/data")
        found = self._checker.check(
            batch_digests.of_rank_0(leaves), rows, self._share
        )
        if self._found is not None:
            found = found.with_ways_of(self._found)
            if found.is_like(self._found):
                return
        self._found = found
        # The trace depends on the ways that were found.
        self._on_part = update_search.compiled(
            self._train_on_part, self._jit_compile
        )

    def _begin(self, function: Any, leaves: list[Any]) -> None:
        """Gives ranks the state of rank 0, and each rank seeds of its own."""
        self._share(update_search.variables_of(function, leaves, self._name))

    def _share(self, variables: list[Variable]) -> None:
        new = [each for each in variables if id(each) not in self._shared]
        self._shared.update((id(each), each) for each in new)
        seeds = [
            each
            for each in new
            if custom_step_semantics.is_seed(each)
            and not compat.is_shared_seed(each)
        ]
        share(new, 0, global_process_set, seeds)

    def _data_of(self, leaves: list[Any]) -> list[Any]:
        return [*itertools.compress(leaves, self._is_data)]

    def _run(self, step: Step, leaves: Sequence[Any]) -> Structure:
        """Runs the function, as the program has written it, in a step."""
        leaves = [
            step.rows_of(leaf) if is_data else leaf
            for leaf, is_data in zip(leaves, self._is_data, strict=True)
        ]
        args, kwargs = tf.nest.pack_sequence_as(self._structure, leaves)
        losses = weighted_losses.OfWholeBatch()
        with whole_batch.step(step), weighted_losses.weighting(losses):
            return self._run_as_written(*args, **kwargs)

    def _train_on_whole(self, *leaves: Any) -> Structure:
        return self._run(WholeStep(global_process_set), leaves)

    def _train_on_part(self, *leaves: Any) -> tuple[Structure, list[Tensor]]:
        found = self._known()
        data = self._data_of([*leaves])
        step = PartStep(data, global_process_set)
        self._digests.note(data)
        before = [tf.identity(each) for each in found.sums]
        with steps.numbers_of_rank(topology.rank()):
            returned = self._run(step, leaves)
        return self._together(step, returned, before)

    def _together(
        self, step: Step, returned: Structure, before: list[Tensor]
    ) -> tuple[Structure, list[Tensor]]:
        """Combines the results and counts of all ranks.

        Args:
            step: The step.
            returned: The results of this rank.
            before: List of tensors, the values of `Found.sums` before the step.

        Returns:
            A tuple: the results, and a list of the sums of those results for
            which several ways, a sum among them, are possible.
        """
        found = self._known()
        leaves = tf.nest.flatten(returned)
        reduced: list[Tensor] = [
            tf.identity(variable) - value
            for variable, value in zip(found.sums, before, strict=True)
        ]
        for leaf, possible in zip(leaves, found.ways, strict=True):
            if Way.MEAN in possible:
                leaf = tf.convert_to_tensor(leaf)
                reduced.append(leaf * tf.cast(step.share(), leaf.dtype))
            if Way.SUM in possible:
                reduced.append(tf.convert_to_tensor(leaf))
        totals = iter(
            reductions.grouped_allreduce(
                reduced,
                op=reduce_ops.Sum,
                name=f"auto/{self._name}/results",
            )
        )
        for variable, value in zip(found.sums, before, strict=True):
            variable.assign(value + next(totals))
        unknown = []
        for index, possible in enumerate(found.ways):
            if Way.MEAN in possible:
                leaves[index] = next(totals)
            if Way.SUM in possible and len(possible) > 1:
                unknown.append(next(totals))
            elif Way.SUM in possible:
                leaves[index] = next(totals)
            if Way.ROWS in possible:
                leaves[index] = gathers.allgather(
                    leaves[index], name=f"auto/{self._name}/rows/{index}"
                )
        return tf.nest.pack_sequence_as(returned, leaves), unknown

    def _decided(
        self,
        returned: Structure,
        unknown: list[Tensor],
        leaves: list[Any],
        rows: int,
    ) -> Structure:
        """Decides whether results that were zero so far are sums.

        Args:
            returned: The results, with a mean where a sum is possible, too.
            unknown: List of tensors, the sums of these results.
            leaves: The arguments of the call.
            rows: Integer, the number of rows of the batch.

        Returns:
            The results, with a sum where that was found out.
        """
        if not any(np.any(each.numpy()) for each in unknown):
            return returned
        before = self._known()
        self._check(leaves, rows)
        found = self._known()
        sums = iter(unknown)
        results = tf.nest.flatten(returned)
        for index, possible in enumerate(before.ways):
            if len(possible) > 1:
                total = next(sums)
                if found.ways[index] == {Way.SUM}:
                    results[index] = total
        return tf.nest.pack_sequence_as(returned, results)

    def _compare(self) -> None:
        name = f"auto/{self._name}"
        self._digests.require_same(f"{name}/data")
        found = self._known()
        variables = [
            each
            for each in found.state
            if not custom_step_semantics.is_seed(each)
        ]
        apart = first_difference(variables, f"{name}/state", global_process_set)
        if apart is not None:
            raise ConsistencyError(
                f"After {self._num_calls:,} calls of {self._name!r} ranks have "
                f"different values of {apart.path!r}, of which {apart.ranks}. "
                "It goes by something that is another on each rank, or changes "
                "it on one rank alone: a random number of Python, the time, "
                "`kr.rank()`."
            )


def rows_of(leaf: Any) -> int | None:
    """Returns the number of rows of an argument, or `None` if it has none."""
    if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
        return int(batch_rows.num_rows(leaf))
    is_tensor = isinstance(leaf, tf.Tensor | np.ndarray)
    if not is_tensor or not len(leaf.shape):
        return None
    return int(leaf.shape[0])


def _dtypes_of(function: Any, arguments: Structure) -> list[tf.DType | None]:
    """Returns the dtype that a signature declares for each leaf, or `None`."""
    args, _ = arguments
    leaves = tf.nest.flatten(arguments)
    found: list[tf.DType | None] = [None] * len(leaves)
    signature = function.input_signature
    if signature is not None:
        declared = tf.nest.flatten(signature)
        if len(declared) >= len(tf.nest.flatten(args)):
            for index in range(len(tf.nest.flatten(args))):
                found[index] = getattr(declared[index], "dtype", None)
    return found


def _converted(function: Any) -> Callable[..., Any]:
    """Returns the Python function, converted as `tf.function` would do it."""
    written: Callable[..., Any] = function.python_function
    if not function._autograph:
        return written
    autograph = tf.__internal__.autograph
    converted: Callable[..., Any] = autograph.tf_convert(
        written, autograph.control_status_ctx()
    )
    return converted
