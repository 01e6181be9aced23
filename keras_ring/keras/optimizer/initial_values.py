"""Detects ranks that begin to train from different values.

Equal gradients keep variables equal only if they were equal before. A program
that forgets to share the initial values trains as many models as there are
ranks, and nothing looks wrong. So variables are compared between ranks when
their gradients are reduced for the first time.

In eager execution, and outside of a `tf.function` while that is traced, this is
done once for each variable and process set, and costs nothing afterwards. All
ranks reach this point, because a collective follows. A rank that traces again,
because its last batch is smaller, finds its variables compared. In a graph of
TensorFlow 1 it is an operation before the first update of a session. A rank
without data may have joined before its first update, while others compared
without it; so nothing is compared after a `join`.

A tape allows one update with different values, because programs that were
written for Horovod share variables after the first step, when the optimizer
has made its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import Operation, Source, Tensor, Variable
from keras_ring.core.arrays import has_joined
from keras_ring.core.process_sets import ProcessSet
from keras_ring.errors import ConsistencyError
from keras_ring.keras.agreement import shared_paths
from keras_ring.keras.agreement.difference import Difference, first_difference
from keras_ring.keras.agreement.shared_paths import shared_path
from keras_ring.keras.lanes import compat
from keras_ring.keras.optimizer import local_updates
from keras_ring.tensorflow import xla
from keras_ring.tensorflow.names import variable_path

# Attributes of a TensorFlow variable: the ranks with which it was compared,
# those with which it is not to be compared, and, by ranks, the number of
# updates since it was found to differ.
_COMPARED = "_keras_ring_compared"
_LEFT_OUT = "_keras_ring_left_out"
_APART = "_keras_ring_apart"


@contextlib.contextmanager
def compared(
    sources: Sequence[Source],
    process_set: ProcessSet,
    local: Container[Source] = (),
    *,
    grace: bool = False,
) -> Iterator[None]:
    """Compares variables before the updates that are made inside.

    Args:
        sources: Variables, and tensors, which are ignored, in an order that
            all ranks share.
        process_set: A `kr.ProcessSet`, whose ranks train the variables.
        local: The sources that each rank trains on its own.
        grace: Boolean, whether they may differ until the first update is
            over.

    Raises:
        ConsistencyError: On all members, if values differ.
    """
    first = None
    if _may_compare(process_set):
        members = tuple(process_set.ranks)
        new = [
            source
            for source in sources
            if variable_path(source) is not None
            and members not in _of(source, _COMPARED)
            and source not in local
        ]
        if new:
            first = _Comparison(new, process_set).begin(grace)
    if first is None:
        yield
        return
    with tf.control_dependencies([first]):
        yield


def leave_out(variables: Iterable[Variable], process_set: ProcessSet) -> None:
    """Excludes variables that each rank keeps from comparisons."""
    for variable in variables:
        members = tuple(process_set.ranks)
        _of(variable, _COMPARED)[members] = 1
        _of(variable, _LEFT_OUT)[members] = 1


def is_left_out(variable: Variable, members: tuple[int, ...]) -> bool:
    """Returns whether `leave_out` has excluded a variable.

    Args:
        variable: A variable.
        members: The ranks that train it together.
    """
    return members in _of(variable, _LEFT_OUT)


def _may_compare(process_set: ProcessSet) -> bool:
    return (
        process_set.size() > 1
        and process_set.included()
        and not has_joined()
        and not local_updates.are_allowed()
    )


class _Comparison:
    """Compares some variables between the members of a process set."""

    def __init__(
        self, variables: list[Variable], process_set: ProcessSet
    ) -> None:
        self._variables = variables
        self._process_set = process_set
        self._members = tuple(process_set.ranks)
        self._done = False

    def begin(self, grace: bool) -> Operation | None:
        """Compares now, or returns the operation that does."""
        with tf.init_scope():
            outside_is_eager = tf.executing_eagerly()
            found = self._look() if outside_is_eager else None
        if not outside_is_eager:
            graph = tf.compat.v1.get_default_graph()
            # A function of such a program may run in any session.
            return None if graph.building_function else self._at_first_run()
        if found is None:
            return None
        if not grace or xla.is_tracing():
            self._fail(found)
        if not tf.executing_eagerly():
            return self._at_each_run()
        self._pass_once(found)
        return None

    def _look(self, *, again: bool = False) -> Difference | None:
        """Returns the difference of values, the same on all members."""
        variables = [compat.tf_variable(each) for each in self._variables]
        if not all(bool(each.is_initialized()) for each in variables):
            # The function that is being traced makes these variables, and
            # TensorFlow traces it once more when they have values.
            return None
        if not again:
            self._agree_on_paths()
        return self._compare()

    def _agree_on_paths(self) -> None:
        # Another thread may train another model, with the same members.
        is_main = threading.current_thread() is threading.main_thread()
        thread = "main" if is_main else shared_path(self._variables[0])
        try:
            shared_paths.agree(
                self._variables,
                f"initial_values/{thread}",
                "variables that are about to be updated",
                self._process_set,
            )
        except ValueError as error:
            raise ConsistencyError(str(error)) from None

    def _compare(
        self, values: Sequence[npt.NDArray[Any]] | None = None
    ) -> Difference | None:
        found = first_difference(
            self._variables,
            f"initial_values/{shared_path(self._variables[0])}/values",
            self._process_set,
            values,
        )
        if found is None:
            self._done = True
            for variable in self._variables:
                _of(variable, _COMPARED)[self._members] = 1
                _of(variable, _APART).pop(self._members, None)
        return found

    def _pass_once(self, found: Difference) -> None:
        """Counts an update with different values, and raises at the second."""
        for variable in self._variables:
            updates = _of(variable, _APART)
            updates[self._members] = updates.get(self._members, 0) + 1
            if updates[self._members] > 1:
                self._fail(found)

    def _at_each_run(self) -> Operation:
        """Returns an operation that compares whenever the function runs."""

        def look_again() -> None:
            if self._done or (found := self._look(again=True)) is None:
                return
            self._pass_once(found)

        return tf.py_function(look_again, [], [])

    def _at_first_run(self) -> Operation:
        """Returns an operation that compares in its first run in a session."""
        for variable in self._variables:
            _of(variable, _COMPARED)[self._members] = 1
        # The variable is in no collection: it is initialized here only.
        is_done = tf.compat.v1.Variable(
            True, trainable=False, collections=[], use_resource=True
        )

        def compare(*values: Tensor) -> bool:
            found = self._compare([value.numpy() for value in values])
            if found is not None:
                self._fail(found)
            return True

        def compare_and_tell() -> Operation:
            values = [tf.identity(variable) for variable in self._variables]
            with tf.control_dependencies(
                [tf.py_function(compare, values, tf.bool)]
            ):
                return is_done.assign(True, read_value=False)

        def none() -> Operation:
            return tf.no_op()

        told = tf.cond(
            tf.raw_ops.VarIsInitializedOp(resource=is_done.handle),
            lambda: _after(none()),
            lambda: _after(compare_and_tell()),
        )
        return told.op

    def _fail(self, found: Difference) -> NoReturn:
        raise ConsistencyError(
            "The ranks begin to train from different values: of the "
            f"{len(self._variables)} variables that are about to be updated, "
            f"{found.count} differ, the first being {found.path!r}, of which "
            f"{found.ranks}. Each rank would train a model of its own. Give "
            "all of them the values of one rank before the first step:\n"
            "  * in `fit`: `model.fit(..., callbacks="
            "[kr.callbacks.BroadcastGlobalVariablesCallback()])`;\n"
            "  * in a loop of your own: "
            "`kr.broadcast_model(model, optimizers=[optimizer])`, or "
            "`kr.broadcast_variables(variables, root_rank=0)`;\n"
            "  * in a session of TensorFlow 1: "
            "`kr.BroadcastGlobalVariablesHook(0)`, or run "
            "`kr.broadcast_global_variables(0)`.\n"
            "Variables that each rank is meant to train on its own are "
            "registered by `optimizer.register_local_var(variable)` or "
            "`tape.register_local_source(variable)`."
        )


def _after(operation: Operation) -> Tensor:
    with tf.control_dependencies([operation]):
        return tf.constant(True)


def _of(variable: Variable, attribute: str) -> dict[tuple[int, ...], int]:
    """Returns a dictionary by ranks that is an attribute of a variable."""
    variable = compat.tf_variable(variable)
    if not hasattr(variable, attribute):
        setattr(variable, attribute, {})
    found: dict[tuple[int, ...], int] = getattr(variable, attribute)
    return found
