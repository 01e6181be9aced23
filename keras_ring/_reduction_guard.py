"""Stops a job whose ranks would drift apart without a word.

In a job of several ranks, an optimizer that applies gradients nobody reduced
trains as many different models as there are ranks, and nothing looks wrong.
So Keras' `Optimizer.apply` is given one check, when `keras_ring.init()` runs.
It costs nothing per step: a compiled step is checked while it is traced.

Gradients count as reduced if one of these holds.

* The update runs inside a `DistributedOptimizer`, which reduces.
* The variables were sources of a `DistributedGradientTape`. The variables are
  remembered and not the gradients, because clipping or scaling a gradient
  makes a new tensor.
* The update runs inside `allow_local_updates()`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import keras
import tensorflow as tf

from keras_ring import basics
from keras_ring._names import variable_path
from keras_ring.errors import LocalUpdateError

_reduced = contextvars.ContextVar("keras_ring_reduced", default=False)
_allowed = contextvars.ContextVar("keras_ring_allowed", default=False)

_MARK = "_keras_ring_reduced_by_tape"
_CHECKED = "_keras_ring_checked"


@contextlib.contextmanager
def reduced() -> Iterator[None]:
    """Says that the gradients of the updates inside were reduced."""
    token = _reduced.set(True)
    try:
        yield
    finally:
        _reduced.reset(token)


def is_reduced() -> bool:
    """Whether the caller runs inside `reduced()`."""
    return _reduced.get()


@contextlib.contextmanager
def allow_local_updates() -> Iterator[None]:
    """Lets optimizers apply gradients that were not reduced.

    With more than one rank, an optimizer that does not reduce its gradients
    raises `LocalUpdateError` at its first step. Use this context where each
    rank is meant to train on its own, or where the gradients were reduced in
    a way that cannot be seen from the optimizer, such as by `kr.allreduce`.

    A compiled step is checked while it is traced, so the context has to be
    around the first call of the step or inside of it.

    Example:
    ```python
    gradients = [kr.allreduce(g, name=v.path) for g, v in zip(grads, weights)]
    with kr.allow_local_updates():
        optimizer.apply(gradients, weights)
    ```
    """
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def mark_reduced(sources: Iterable[Any]) -> None:
    """Remembers that gradients of the variables among `sources` are reduced."""
    for source in sources:
        if variable_path(source) is not None:
            setattr(_tf_variable(source), _MARK, True)


def install() -> None:
    """Gives Keras' optimizers the check. Calling it again changes nothing."""
    apply = keras.optimizers.Optimizer.apply
    if not hasattr(apply, _CHECKED):
        keras.optimizers.Optimizer.apply = _checked(apply)


def _checked(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def checked_apply(
        self: Any, grads: Any, trainable_variables: Any = None
    ) -> Any:
        _check(self, grads, trainable_variables)
        return apply(self, grads, trainable_variables)

    # Keras keeps autograph away from its own code; this is now part of it.
    hooked = tf.autograph.experimental.do_not_convert(checked_apply)
    setattr(hooked, _CHECKED, True)
    return cast(Callable[..., Any], hooked)


def _check(optimizer: Any, gradients: Any, variables: Any) -> None:
    if _reduced.get() or _allowed.get():
        return
    if not basics.is_initialized() or basics.size() == 1:
        return
    if variables is None:
        variables = getattr(optimizer, "_trainable_variables", ())
    local = [
        variable
        for gradient, variable in zip(gradients, variables, strict=False)
        if gradient is not None and not hasattr(_tf_variable(variable), _MARK)
    ]
    if not local:
        return
    raise LocalUpdateError(
        f"Optimizer {optimizer.name!r} was about to update "
        f"{variable_path(local[0])!r} with gradients of this rank alone, in a "
        f"job of {basics.size()} ranks. Each rank would train a model of its "
        "own. Do one of these:\n"
        "  * wrap the optimizer: "
        "`optimizer = kr.DistributedOptimizer(optimizer)`, before "
        "`model.compile(optimizer, ...)`;\n"
        "  * in a loop of your own, wrap the tape: "
        "`tape = kr.DistributedGradientTape(tape)`;\n"
        "  * after loading a model, load it with `kr.load_model(path)`;\n"
        "  * if it is meant so, put the update inside "
        "`with kr.allow_local_updates():`."
    )


def _tf_variable(variable: Any) -> Any:
    """Returns the TensorFlow variable: what optimizers and tapes share."""
    if isinstance(variable, keras.Variable):
        return variable.value
    return variable
