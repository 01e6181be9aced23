"""Finds the optimizers that a compiled function uses, and makes them average.

The function is traced for that. An optimizer that is about to apply gradients
in the trace is first made to average them (`reduction_guard.adopt_by`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_ring._typing import Optimizer, Variable
from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras import scope
from keras_ring.keras.backends import backend
from keras_ring.keras.optimizer import reduction_guard, whole_batch
from keras_ring.keras.optimizer.optimizer import distribute_optimizer
from keras_ring.keras.optimizer.reduction import ReductionSettings
from keras_ring.keras.optimizer.whole_batch import WholeStep
from keras_ring.unchanged import ending

_IS_OURS = "_keras_ring_own_function"


def install() -> None:
    """Makes optimizers average if they are used in a trace made here."""
    reduction_guard.adopt_by(_adopt)


def is_running() -> bool:
    """Returns whether the caller runs in a trace that is made here."""
    return scope.current().traced_function is not None


@contextlib.contextmanager
def noting() -> Iterator[list[Optimizer]]:
    """Records the optimizers that are refused in traces in the context.

    This is for functions that apply gradients for some arguments alone.
    """
    found: list[Optimizer] = []
    with scope.inside(noted_optimizers=found):
        yield found


def note(optimizer: Optimizer) -> None:
    """Records an optimizer that is about to be refused."""
    found = scope.current().noted_optimizers
    if found is not None and not backend.is_eager():
        found.append(optimizer)


@contextlib.contextmanager
def tracing(name: str) -> Iterator[None]:
    """Marks a function that is traced in the context as a training step.

    Args:
        name: String, the name of the function in the program.
    """
    with scope.inside(traced_function=name):
        yield


def compiled(function: Callable[..., Any], jit_compile: Any = None) -> Any:
    """Returns a compiled function that is not searched for updates.

    Args:
        function: The function to compile, which AutoGraph need not convert.
        jit_compile: Boolean, whether XLA compiles it, as for `tf.function`.
    """
    made = tf.function(function, autograph=False, jit_compile=jit_compile)
    # Bypasses its own `__setattr__`, which tracks attributes.
    object.__setattr__(made, _IS_OURS, True)
    return made


def is_ours(function: Any) -> bool:
    """Returns whether `compiled` has made a function."""
    return _IS_OURS in vars(function)


def trains(function: Any, name: str, *args: Any, **kwargs: Any) -> bool:
    """Returns whether a function applies gradients. It is traced, not run.

    Args:
        function: A function that `tf.function` has made.
        name: String, its name in the program.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.
    """
    step = WholeStep(global_process_set, [])
    with tracing(name), whole_batch.step(step):
        function.get_concrete_function(*args, **kwargs)
    return bool(step.captured)


def variables_of(
    function: Any, arguments: list[Any], name: str
) -> list[Variable]:
    """Returns the variables of a function, in the order of its graph.

    Args:
        function: A function that `tf.function` has made and that runs in a
            `whole_batch.Step`.
        arguments: List of its arguments.
        name: String, its name in the program.
    """
    with tracing(name):
        concrete = function.get_concrete_function(*arguments)
    index_by_id = {
        id(outer): index
        for index, (outer, _) in enumerate(concrete.graph.captures)
    }
    variables = {id(each): each for each in concrete.variables}
    return sorted(
        (each for each in variables.values() if id(each.handle) in index_by_id),
        key=lambda each: index_by_id[id(each.handle)],
    )


def _adopt(optimizer: Optimizer) -> bool:
    of_step = scope.current()
    name = of_step.traced_function
    if name is not None:
        if backend.is_eager():
            return False
        what = f"of step {name!r}"
    elif of_step.part is not None:
        # One that a `train_step` uses and the model does not have.
        what = "of the step of `fit`"
    else:
        return False
    distribute_optimizer(optimizer, ReductionSettings(whole_batch=True))
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    ending.note_training()
    say(
        f"optimizer {type(inner).__name__} {what}: gradients averaged over "
        f"{topology.size()} ranks"
    )
    return True
