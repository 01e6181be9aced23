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

from keras_ring._typing import Operation, Source, Variable
from keras_ring.core.arrays import has_joined
from keras_ring.core.process_sets import ProcessSet, is_alone, key_of
from keras_ring.errors import ConsistencyError
from keras_ring.keras.agreement import shared_paths
from keras_ring.keras.agreement.difference import Difference, first_difference
from keras_ring.keras.agreement.shared_paths import shared_path
from keras_ring.keras.backends import backend
from keras_ring.keras.optimizer import local_updates

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
        members = key_of(process_set)
        new = [
            source
            for source in sources
            if backend.variable_path(source) is not None
            and members not in _of(source, _COMPARED)
            and source not in local
        ]
        if new:
            first = _Comparison(new, process_set).begin(grace)
    if first is None:
        yield
        return
    with backend.after(first):
        yield


def leave_out(variables: Iterable[Variable], process_set: ProcessSet) -> None:
    """Excludes variables that each rank keeps from comparisons."""
    variables = list(variables)
    note_equal(variables, process_set)
    for variable in variables:
        _of(variable, _LEFT_OUT)[key_of(process_set)] = 1


def note_equal(variables: Iterable[Variable], process_set: ProcessSet) -> None:
    """Takes note that variables are equal on all ranks of a process set.

    All of them must do so, because they are not compared any more.
    """
    for variable in variables:
        _of(variable, _COMPARED)[key_of(process_set)] = 1


def is_left_out(variable: Variable, members: tuple[int, ...]) -> bool:
    """Returns whether `leave_out` has excluded a variable.

    Args:
        variable: A variable.
        members: The ranks that train it together.
    """
    return members in _of(variable, _LEFT_OUT)


def _may_compare(process_set: ProcessSet) -> bool:
    return (
        process_set.included()
        and not is_alone(process_set)
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
        self._members = key_of(process_set)
        self._done = False

    def begin(self, grace: bool) -> Operation | None:
        """Compares now, or returns the operation that does."""
        with backend.outside_of_traces():
            outside_is_eager = backend.is_eager()
            found = self._look() if outside_is_eager else None
        if not outside_is_eager:
            # A function of such a program may run in any session.
            if getattr(backend.graph(), "building_function", False):
                return None
            return self._at_first_run()
        if found is None:
            return None
        if not grace or backend.is_compiled():
            self._fail(found)
        if not backend.is_eager():
            return self._at_each_run()
        self._pass_once(found)
        return None

    def _look(self, *, again: bool = False) -> Difference | None:
        """Returns the difference of values, the same on all members."""
        if not all(map(backend.is_initialized, self._variables)):
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

        return backend.at_each_run(look_again)

    def _at_first_run(self) -> Operation:
        """Returns an operation that compares in its first run in a session."""
        # Only programs of TensorFlow have sessions.
        from keras_ring.tensorflow import sessions

        for variable in self._variables:
            _of(variable, _COMPARED)[self._members] = 1

        def compare(values: Sequence[npt.NDArray[Any]]) -> None:
            found = self._compare(values)
            if found is not None:
                self._fail(found)

        return sessions.at_first_run(compare, self._variables)

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


def _of(variable: Variable, attribute: str) -> dict[tuple[int, ...], int]:
    """Returns a dictionary by ranks that is an attribute of a variable."""
    variable = backend.storage(variable)
    if not hasattr(variable, attribute):
        setattr(variable, attribute, {})
    found: dict[tuple[int, ...], int] = getattr(variable, attribute)
    return found
