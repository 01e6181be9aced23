"""The steps of models of Keras that compute with JAX.

Keras passes the values of a model's variables to a step, and takes new ones
from it. While `fit` runs, the variables themselves have none. So what reads
variables before a step, or while the step is traced, finds their values here.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import numpy.typing as npt
from keras.src.backend.common import global_state, stateless_scope

from keras_ring._typing import Logs, Model, Structure, Variable
from keras_ring.jax import tracing
from keras_ring.keras import scope

_State = Sequence[Sequence[Any]]
_Run = Callable[[Iterator[Structure]], Any]

# The models that have steps: their variables may have no values.
_models: weakref.WeakSet[Model] = weakref.WeakSet()


class Trace:
    """A function that JAX traces; what it updates is noted in attributes.

    JAX traces it in its first run.
    """

    building_function = True
    is_running = True
    outer_graph = None


class Step(Trace):
    """A step of a model: a function of the model's state and a batch.

    Args:
        model: The `keras.Model`.
        function: The function, compiled or not.
    """

    def __init__(self, model: Model, function: Callable[..., Any]) -> None:
        self._model = weakref.ref(model)
        self._function = function
        self._state: _State = ()
        self._values: dict[int, Any] | None = None

    @property
    def graph(self) -> Trace:
        """The trace that `run` belongs to: this one."""
        return self

    def __call__(self, state: _State, batch: Structure) -> Any:
        """Runs the step as one of this model."""
        self._state = state
        try:
            with scope.inside(step=self):
                return self.run(state, batch)
        finally:
            # JAX may reuse their memory for the results.
            self._state, self._values = (), None

    def run(self, state: _State, batch: Structure) -> Any:
        """Runs the step. Subscribers of `GRAPH_RUN` are around this."""
        return self._function(state, batch)

    def value_of(self, variable: Variable) -> Any:
        """Returns the value of a variable before this step, or `None`."""
        if self._values is None:
            pairs = _pairs(self._model(), self._state)
            self._values = {id(each): value for each, value in pairs}
        return self._values.get(id(variable))


class Batches:
    """The batches of one pass, which a step reads.

    Args:
        batches: An iterator over batches.
    """

    def __init__(self, batches: Iterator[Structure]) -> None:
        self._batches = batches

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Structure:
        """Returns the next batch. Subscribers are around this."""
        return next(self._batches)


def _pairs(
    model: Model | None, state: _State
) -> Iterator[tuple[Variable, Any]]:
    """Yields the variables of a model with their values in a state."""
    if model is None:
        return
    variables = [model.trainable_variables, model.non_trainable_variables]
    if len(state) == 4:  # of a training
        variables.append(model.optimizer.variables)
    if len(state) >= 3:  # or of an evaluation
        variables.append(model.metrics_variables)
    for some, values in zip(variables, state, strict=False):
        yield from zip(some, values, strict=False)


def step_of(model: Model, function: Callable[..., Any]) -> Step:
    """Returns the `Step` that a function of a model is.

    Args:
        model: The `keras.Model`.
        function: Its function of a state and a batch.
    """
    _models.add(model)
    return Step(model, function)


def current() -> Trace | None:
    """Returns what is being traced, `None` if nothing is."""
    if not tracing.is_tracing():
        return None
    return scope.current().step or Trace()


def value_of(variable: Variable) -> Any:
    """Returns the value of a variable, or `None` if it has none yet.

    In a step that runs eagerly this is the present one; while a step is traced,
    that of before.
    """
    inner = stateless_scope.get_stateless_scope()
    if inner is not None:
        value = inner.get_current_value(variable)
        if tracing.has_value(value):
            return value
    step = scope.current().step
    # What was assigned outside of the step comes first.
    if step is not None and variable._value is None:
        value = step.value_of(variable)
        if tracing.has_value(value):
            return value
    if variable._value is None:
        for model in list(_models):
            model.jax_state_sync()
    return variable._value if tracing.has_value(variable._value) else None


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Computes in the context at once, and assigns to variables themselves."""
    with _without_scope(), tracing.outside_of_traces():
        yield


def replacement(
    model: Model, train: Callable[..., Any], around: Callable[[_Run, Any], Logs]
) -> Callable[..., Any]:
    """Returns a training function that calls another function instead.

    Args:
        model: The `keras.Model`.
        train: Its training function.
        around: Function that takes one that trains on the batches of an
            iterator, and the iterator, and returns logs.
    """

    def train_on(state: _State, iterator: Iterator[Structure]) -> Any:
        runner = _Runner(train, state)
        pairs = list(_pairs(model, state))
        # For what reads metrics, which have no values otherwise.
        with keras.StatelessScope(state_mapping=pairs):
            logs = around(runner.run, iterator)
        return logs, runner.state

    return train_on


def runner(model: Model) -> _Run:
    """Returns a function that trains a copy of the present state of a model."""
    model.jax_state_sync()
    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
    )
    # Steps may reuse the memory of the state that they get.
    copied = [[jnp.copy(value) for value in values] for values in state]
    return _Runner(model.train_function, copied).run


def tried(
    model: Model, train_step: Callable[..., Any], batch: Structure
) -> tuple[Logs, dict[int, npt.NDArray[Any]]]:
    """Runs a step at once, with new metrics, and keeps nothing of it.

    Args:
        model: A `keras.Model` in `fit`.
        train_step: Function of the state of the model and a batch.
        batch: The batch.

    Returns:
        A tuple of its logs, and of the values of variables after it.
    """
    metrics = model.metrics_variables
    with keras.StatelessScope(
        state_mapping=[(each, value_of(each)) for each in metrics]
    ) as reset:
        model.reset_metrics()
    variables = [
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
    ]
    state = (
        *([value_of(each) for each in some] for some in variables),
        [reset.get_current_value(each) for each in metrics],
    )
    with outside():
        logs, after = train_step(state, batch)
    pairs = _pairs(model, after)
    return logs, {id(variable): np.array(value) for variable, value in pairs}


class _Runner:
    """Trains on batches, and keeps the state between steps.

    Args:
        train: The training function of a model.
        state: The state that it begins with.
    """

    def __init__(self, train: Callable[..., Any], state: _State) -> None:
        self._train = train
        self.state = state

    def run(self, iterator: Iterator[Structure]) -> Logs:
        """Runs one execution, and returns its logs."""
        with _without_scope():
            logs: Logs
            logs, self.state = self._train(self.state, iterator)
        return logs


@contextlib.contextmanager
def _without_scope() -> Iterator[None]:
    """Makes variables in the context those of the program again."""
    inner = stateless_scope.get_stateless_scope()
    global_state.set_global_attribute("stateless_scope", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("stateless_scope", inner)
