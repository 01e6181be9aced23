"""Detects ranks whose values diverge after they have begun equal.

`initial_values` compares variables before their first update. Afterwards they
stay equal as long as all inputs of an update are equal on all ranks: the
variables, those of the optimizer (slots, the number of the step, the learning
rate), and settings outside of variables. So these are compared again: before
the first update, when a `fit` begins, and from then on ever more rarely, in
part (`looks`).

The interval is counted in updates, because all ranks make the same number of
them between two collectives. The ranks agree on the interval by the time that
comparisons take. In eager execution an update is counted when it is made. In a
`tf.function` it is counted when the function runs, and not when it is traced,
because one rank may trace again, or for other arguments. A step of JAX is
traced in its first run, which is counted then. A function that the program
itself compiles by JAX is not known here: its updates are compared once, before
the first. In a graph of TensorFlow 1 a variable counts updates, and an
operation after the update compares.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Container, Sequence
from typing import Any, NoReturn

from keras_ring._typing import (
    Graph,
    Model,
    Optimizer,
    Source,
    Structure,
    Tensor,
    Variable,
)
from keras_ring.core import generations
from keras_ring.core.arrays import has_joined
from keras_ring.core.process_sets import ProcessSet, is_alone, key_of
from keras_ring.errors import ConsistencyError
from keras_ring.keras.agreement import difference, fingerprints
from keras_ring.keras.agreement.difference import Difference
from keras_ring.keras.agreement.fingerprints import Pieces
from keras_ring.keras.agreement.looks import LONGEST, Looks
from keras_ring.keras.agreement.shared_paths import shared_path
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import initial_values, optimizer_state

_PURPOSE = "what ranks train is compared from time to time"
# Attribute of the graph of a function: the trainings that it updates.
_UPDATES = "_keras_ring_updates"

_Members = tuple[int, ...]
_State = tuple[list[Variable], Pieces]


class _Training:
    """The variables that one optimizer trains together with other ranks.

    Args:
        optimizer: The optimizer.
        process_set: A `kr.ProcessSet`, whose ranks train together.
        grace: Boolean, whether ranks may differ until the first update is
            over.
        passes: Integer, the number of calls of the optimizer for one update.
            In the others it accumulates gradients, and ranks need not make
            equally many of them.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        process_set: ProcessSet,
        grace: bool,
        passes: int,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._process_set = process_set
        self._members = key_of(process_set)
        self.passes = passes
        self._grace = grace
        # By the identity of the TensorFlow variable, in the order of updates.
        self._trained: dict[int, Variable] = {}
        self._own: dict[int, Variable] = {}
        self._calls = 0
        # Number of calls before the current comparison.
        self._made = 0
        self._looks = Looks()
        # The variables and values that ranks share, and the key of this cache.
        self._state: _State = [], Pieces([])
        self._made_of: tuple[list[Variable], tuple[int, ...]] = [], ()

    def add(
        self, sources: Sequence[Source], local: Container[Source] = ()
    ) -> None:
        """Adds the variables that an update changes."""
        for source in sources:
            key = id(backend.storage(source))
            if key in self._trained or key in self._own:
                continue
            if backend.variable_path(source) is None:
                continue
            is_own = source in local or initial_values.is_left_out(
                source, self._members
            )
            (self._own if is_own else self._trained)[key] = source

    def begin_again(self) -> None:
        """Requests a comparison before the next update."""
        self._looks.begin_again()

    def begin_anew(self) -> None:
        """Counts updates from 0 again, as ranks do that have come in."""
        self._calls = self._made = 0
        self._looks = Looks()
        self._grace = False

    def has_begun(self) -> bool:
        """Returns whether an update was counted."""
        return self._calls > 0

    def before_update(self) -> None:
        """Counts an update, and compares before it if a comparison is due.

        Raises:
            ConsistencyError: On all members, if they differ.
        """
        if has_joined():
            # Ranks may have counted different numbers of updates.
            return
        self._made, self._calls = self._calls, self._calls + 1
        if self._made % self.passes or not self._trained:
            return
        if self._grace:
            self._grace = False
            return
        if self._looks.is_due():
            self._look()

    def after_updates(
        self,
        variables: Sequence[Variable],
        values: Sequence[Tensor],
        count: int,
    ) -> int:
        """Compares values after an update in a session.

        Args:
            variables: Result of `state`.
            values: Values of the variables.
            count: Integer, the number of updates since the last comparison.

        Returns:
            The number of updates until the next comparison.
        """
        if has_joined():
            return LONGEST
        self._made = self._calls = self._calls + count
        self._looks.is_due(count)
        return self._compare(variables, Pieces(variables), values)

    def state(self) -> _State:
        """Returns the state that ranks share, the likely causes first."""
        optimizer = self._optimizer()
        every = [] if optimizer is None else optimizer_state.all_of(optimizer)
        # It seldom changes, and takes long to make from thousands of variables.
        made_of = (len(self._trained), len(self._own), *map(id, every))
        if made_of != self._made_of[1]:
            own, shared = list(self._own.values()), every
            if optimizer is not None:
                shared = optimizer_state.shared_variables(optimizer, own)
            scalars = [each for each in shared if not len(each.shape)]
            others = [each for each in shared if len(each.shape)]
            variables = [*scalars, *self._trained.values(), *others]
            self._state = variables, Pieces(variables)
            self._made_of = every, made_of
        return self._state

    def _look(self) -> None:
        self._compare(*self.state())

    def _compare(
        self,
        variables: Sequence[Variable],
        pieces: Pieces,
        values: Sequence[Tensor] | None = None,
    ) -> int:
        with self._looks.looking(pieces) as part:
            content = fingerprints.of_pieces(variables, part, values)
        if content is None:
            # The variables of a function that makes them in its first run.
            return 1
        path = shared_path(next(iter(self._trained.values())))
        name = f"training_state/{path}"
        same, (updates, parts) = difference.alike(
            content + pieces.effort.to_bytes(8, "little"),
            self._looks.wishes(pieces),
            name,
            self._process_set,
        )
        updates = max(1, updates)
        self._looks.agreed(updates, max(1, parts))
        if not same:
            # Searches the whole state, of which only a part was compared.
            found = difference.first_difference(
                variables, name, self._process_set, values
            )
            if found is not None:
                self._fail(found, len(variables))
        return updates

    def _fail(self, found: Difference, count: int) -> NoReturn:
        optimizer = self._optimizer()
        name = optimizer_state.name_of(optimizer)
        when = (
            f"before update {self._made + 1:,}"
            if self._made
            else "before the first update"
        )
        what = (
            f"ranks {self._process_set.ranks} have {found.counts} variables"
            if found.counts
            else f"of {count} variables, its own and those that it trains, "
            f"{found.count} differ, the first being {found.path!r}, of which "
            f"{found.ranks}"
        )
        if found.values:
            what += f" ({found.values})"
        raise ConsistencyError(
            f"The ranks do not train the same model: {when} by optimizer "
            f"{name!r}, {what}. Something was changed on some ranks only: "
            "weights, or the state of the optimizer, that one rank alone has "
            "loaded; a learning rate or a schedule, weight decay or clipping "
            "that depends on the rank; a callback, or code under "
            "`if kr.rank() == 0`. Do it on all ranks, or share it before the "
            "next step: by `kr.callbacks.BroadcastGlobalVariablesCallback()` "
            "in each `fit`, or by "
            "`kr.broadcast_model(model, optimizers=[optimizer])`. Variables "
            "that each rank is meant to train on its own are registered by "
            "`optimizer.register_local_var(variable)` or "
            "`tape.register_local_source(variable)`."
        )


_Trainings = dict[_Members, _Training]
# The trainings of optimizers, as long as the optimizers live.
_trainings: weakref.WeakKeyDictionary[Optimizer, _Trainings] = (
    weakref.WeakKeyDictionary()
)


def updating(
    optimizer: Optimizer,
    sources: Sequence[Source],
    process_set: ProcessSet,
    update: Callable[[], Any],
    *,
    local: Container[Source] = (),
    grace: bool = False,
    passes: int = 1,
) -> Any:
    """Makes an update, and compares the ranks if a comparison is due.

    Args:
        optimizer: The optimizer that makes it.
        sources: The variables that have gradients, in an order that all ranks
            share.
        process_set: A `kr.ProcessSet`, whose ranks reduce the gradients.
        update: Function that makes the update.
        local: The sources that each rank trains on its own.
        grace: Boolean, whether ranks may differ until the first update is
            over.
        passes: Integer, the number of calls after which gradients are reduced.

    Returns:
        The result of `update`; in a graph of TensorFlow 1, an operation.

    Raises:
        ConsistencyError: On all members, if a comparison is due and they
            differ.
    """
    if is_alone(process_set) or not process_set.included():
        return update()
    by_members = _trainings.setdefault(optimizer, {})
    members = key_of(process_set)
    training = by_members.get(members)
    if training is None:
        _install()
        # Who has come in has the values of the others.
        grace = grace and not generations.num_admissions()
        training = _Training(optimizer, process_set, grace, passes)
        by_members[members] = training
    training.add(sources, local)
    if backend.is_eager():
        training.before_update()
        return update()
    graph = backend.graph()
    if getattr(graph, "building_function", False):
        _note(graph, [training])
        if getattr(graph, "is_running", False) and not training.has_begun():
            with backend.outside_of_traces():
                training.before_update()
        return update()
    return _in_session(training, update)


def _install() -> None:
    hooks.subscribe(
        events.GRAPH_RUN, _counted, ring=Ring.COMPARE, purpose=_PURPOSE
    )
    generations.on_admission(_begin_anew)
    hooks.subscribe(
        events.FIT_RUNS, _begun, ring=Ring.COMPARE, purpose=_PURPOSE
    )


def _note(graph: Graph | None, trainings: Sequence[_Training]) -> None:
    """Notes the trainings that a function and its outer functions update."""
    while getattr(graph, "building_function", False):
        noted: list[_Training] = getattr(graph, _UPDATES, [])
        new = [each for each in trainings if each not in noted]
        setattr(graph, _UPDATES, [*noted, *new])
        graph = getattr(graph, "outer_graph", None)


def _counted(call: Callable[..., Structure]) -> Callable[..., Structure]:
    """Returns a method that runs a traced function and counts its updates.

    All calls of a function must use the method.
    `tests/keras/test_divergence_on_ranks.py` fails if they no longer do.
    """

    @functools.wraps(call)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Structure:
        trainings = getattr(self.graph, _UPDATES, None)
        if trainings:
            if backend.is_eager():
                for training in trainings:
                    training.before_update()
            else:
                _note(backend.graph(), trainings)
        return call(self, *args, **kwargs)

    return counted


def _begun(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a `fit` that requests comparisons at its begin and its end."""

    @functools.wraps(fit)
    def fit_compared(self: Model, *args: Any, **kwargs: Any) -> Any:
        _begin_again(self)
        history = fit(self, *args, **kwargs)
        # For a loop of the program that may follow.
        _begin_again(self)
        return history

    return fit_compared


def _begin_again(model: Model) -> None:
    """Requests a comparison before the next update of each optimizer."""
    for optimizer in vars(model).values():
        for each in (optimizer, getattr(optimizer, "inner_optimizer", None)):
            # Objects other than optimizers may not be hashable.
            if compat.is_optimizer(each):
                for training in _trainings.get(each, {}).values():
                    training.begin_again()


def _begin_anew() -> None:
    for trainings in _trainings.values():
        for training in trainings.values():
            training.begin_anew()


def _in_session(training: _Training, update: Callable[[], Any]) -> Any:
    """Makes an update in a graph, and compares after it.

    It does not compare before, because the update makes the slots of the
    optimizer.
    """
    # Only programs of TensorFlow have sessions.
    from keras_ring.tensorflow import sessions

    done = update()
    variables, _ = training.state()
    return sessions.now_and_then(
        lambda values, count: training.after_updates(variables, values, count),
        variables,
        done,
        training.passes,
    )
