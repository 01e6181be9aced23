"""Stops a job whose ranks would train different models unnoticed.

In a job of several ranks, an optimizer that applies gradients that were not
reduced trains as many different models as there are ranks, and nothing looks
wrong. So the methods that apply gradients in the optimizers of Keras and
TensorFlow get a check, when `keras_ring.init()` runs, and again at each
`DistributedOptimizer`, for a Keras that was imported later. It costs nothing
per step: a compiled step is checked while it is traced.

Gradients count as reduced if one of these holds.

* The update runs inside a `DistributedOptimizer`, which reduces.
* A `DistributedGradientTape` has reduced gradients of the variables that were
  not yet applied (`tape_marks`).
* The update runs inside `allow_local_updates()`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keras_ring._typing import (
    Gradient,
    GradsAndVars,
    Optimizer,
    Source,
    Variable,
)
from keras_ring.core import topology
from keras_ring.errors import KerasRingError, LocalUpdateError
from keras_ring.keras import scope
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import events, families, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import (
    divergence,
    local_updates,
    tape_marks,
)

_PURPOSE = "updates of one rank alone are errors"
_APPLIED = "_keras_ring_applied"


@contextlib.contextmanager
def reduced() -> Iterator[None]:
    """Declares that the gradients of the updates inside were reduced."""
    with scope.inside(is_reduced=True):
        yield


def is_reduced() -> bool:
    """Returns whether the caller runs inside `reduced()`."""
    return scope.current().is_reduced


def require_unreduced(
    optimizer: Optimizer,
    gradients: Sequence[Gradient],
    sources: Sequence[Source],
) -> None:
    """Raises an error if gradients are about to be reduced twice.

    Args:
        optimizer: The optimizer that is about to reduce them.
        gradients: Tensors, `tf.IndexedSlices` or `None`, one per source.
        sources: The variables of the gradients.

    Raises:
        ValueError: If a tape has reduced one of them.
    """
    if not topology.is_initialized() or topology.stays_alone():
        return
    for gradient, source in zip(gradients, sources, strict=True):
        if gradient is not None and tape_marks.comes_from_tape(
            source, gradient
        ):
            raise ValueError(
                f"The gradient of {backend.variable_path(source)!r} comes "
                "from a `DistributedGradientTape`, which has reduced it, and "
                f"optimizer {name_of(optimizer)!r} is a "
                "`DistributedOptimizer`, which would reduce it again. Use one "
                "of the two: with the tape, a plain optimizer; with this "
                "optimizer, a `tf.GradientTape`."
            )


def require_step(optimizer: Optimizer) -> Any:
    """Returns the step on a part of a batch that an update belongs to.

    Args:
        optimizer: An optimizer that supports such steps only.

    Returns:
        The `whole_batch.Step`, or `None` if updates of one rank are allowed.

    Raises:
        RuntimeError: If there is no step, so that the rows of the gradients
            are unknown.
    """
    step = scope.current().part
    if step is None and not local_updates.are_allowed():
        raise _make_error(optimizer, None)
    return step


def explain_by(
    make_error: Callable[[Optimizer, Source], KerasRingError],
) -> None:
    """Sets the function that makes the errors.

    Args:
        make_error: Function of the optimizer and of a variable that it was
            about to update, or `None`, that returns the error to raise.
    """
    global _make_error
    _make_error = make_error


def adopt_by(adopt: Callable[[Optimizer], bool]) -> None:
    """Sets the function that converts optimizers to ones that average.

    Args:
        adopt: Function of an optimizer that is about to apply gradients of this
            rank alone. It returns whether it has converted the optimizer.
    """
    global _adopt
    _adopt = adopt


def has_applied(optimizer: Optimizer) -> bool:
    """Returns whether an optimizer was used, or a step with it was traced."""
    return hasattr(optimizer, _APPLIED)


def install() -> None:
    """Adds the check to optimizers. A second call changes nothing."""
    hooks.subscribe(events.APPLIED, _checked, ring=Ring.JOB, purpose=_PURPOSE)
    hooks.subscribe(
        events.PAIRS_APPLIED, _checked_pairs, ring=Ring.JOB, purpose=_PURPOSE
    )


# Keras excludes its own code from AutoGraph, and these are now part of it.
def _checked(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Returns Keras 3's `apply` with the check."""

    @backend.unconverted
    @functools.wraps(apply)
    def checked_apply(
        self: Optimizer,
        grads: Iterable[Gradient],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> Any:
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        if _is_adopted(self, grads, trainable_variables):
            return self.apply(grads, trainable_variables)
        return _compared(
            self,
            grads,
            trainable_variables,
            lambda: apply(self, grads, trainable_variables),
        )

    return checked_apply


def _checked_pairs(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the `apply_gradients` of other optimizers with the check."""

    @backend.unconverted
    @functools.wraps(apply)
    def checked_apply(
        self: Optimizer,
        grads_and_vars: GradsAndVars,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        if _is_adopted(self, gradients, variables):
            return self.apply_gradients(pairs, *args, **kwargs)
        return _compared(
            self,
            gradients,
            variables,
            lambda: apply(self, pairs, *args, **kwargs),
        )

    return checked_apply


def _is_left_alone() -> bool:
    return (
        scope.current().is_reduced
        or local_updates.are_allowed()
        or not topology.is_initialized()
        or topology.stays_alone()
    )


def _is_adopted(
    optimizer: Optimizer,
    gradients: Iterable[Gradient],
    variables: Iterable[Variable] | None,
) -> bool:
    """Returns whether the optimizer was just converted to one that averages.

    If so, the caller has to call the method of the converted optimizer.

    Raises:
        RuntimeError: If it applies gradients of this rank alone.
    """
    # Bypasses the optimizer's own `__setattr__`, which tracks attributes.
    object.__setattr__(optimizer, _APPLIED, True)
    if _is_left_alone():
        return False
    if variables is None:
        variables = getattr(optimizer, "_trainable_variables", ())
    updates = [
        (gradient, variable)
        for gradient, variable in zip(gradients, variables, strict=False)
        if gradient is not None
    ]
    local = [
        variable
        for gradient, variable in updates
        if not tape_marks.is_marked(variable, gradient)
    ]
    if not local:
        for gradient, variable in updates:
            tape_marks.use(variable, gradient)
        return False
    if _adopt(optimizer):
        return True
    raise _make_error(optimizer, local[0])


def _compared(
    optimizer: Optimizer,
    gradients: Iterable[Gradient],
    variables: Iterable[Variable] | None,
    update: Callable[[], Any],
) -> Any:
    """Makes an update of gradients that a tape has reduced."""
    if _is_left_alone():
        return update()
    if variables is None:
        variables = getattr(optimizer, "_trainable_variables", ())
    updated = [
        variable
        for gradient, variable in zip(gradients, variables, strict=False)
        if gradient is not None
    ]
    if answers := tape_marks.answers(updated):
        update = functools.partial(backend.use_if, answers, update)
    by_whom = tape_marks.reduced_by(updated)
    if by_whom is None:
        return update()
    return divergence.updating(
        optimizer,
        updated,
        by_whom.process_set,
        update,
        local=by_whom.local,
        grace=True,
    )


def local_update_error(
    optimizer: Optimizer, variable: Source
) -> KerasRingError:
    """Returns the error of an update by gradients of one rank alone."""
    error: KerasRingError = LocalUpdateError(
        f"Optimizer {name_of(optimizer)!r} was about to update "
        f"{backend.variable_path(variable)!r} with gradients of this rank "
        f"alone, in a job of {topology.size()} ranks. Each rank would train a "
        "model of its own. Do one of these:\n"
        "  * wrap the optimizer: "
        "`optimizer = kr.DistributedOptimizer(optimizer)`, before "
        "`model.compile(optimizer, ...)`;\n"
        "  * in a loop of your own, wrap the tape: "
        "`tape = kr.DistributedGradientTape(tape)`;\n"
        "  * after loading a model, load it with `kr.load_model(path)`;\n"
        "  * if it is meant so, put the update inside "
        "`with kr.allow_local_updates():`."
    )
    return error


_MakeError = Callable[[Optimizer, Source], KerasRingError]
_make_error: _MakeError = local_update_error


def _adopts_none(optimizer: Optimizer) -> bool:
    del optimizer
    return False


_adopt: Callable[[Optimizer], bool] = _adopts_none


def name_of(optimizer: Optimizer) -> str:
    """Returns the name of an optimizer, of whichever kind."""
    if families.is_v1(optimizer):
        return str(optimizer.get_name())
    return str(getattr(optimizer, "name", None) or optimizer._name)
