"""Scales the momentum of an optimizer whose steps TensorFlow traces."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_ring._typing import DType, Optimizer, Tensor, Variable
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.optimizer import reduction_guard
from keras_ring.keras.optimizer.mixin import CopyableMixin
from keras_ring.tensorflow.autograph import do_not_convert

_IN_STEP = "_keras_ring_scaled_in_step"


class TracedMomentum:
    """Multiplies the momentum of an optimizer whose steps are traced.

    The step itself multiplies by a factor that it reads from a variable. Steps
    that were traced before this object was made do not. So the momentum of an
    optimizer that was used before is multiplied before the step, by one call of
    one function. The same holds for an optimizer that accumulates gradients: it
    may be saved before its next update, and the factor is not saved.

    Args:
        optimizer: The optimizer, without a `LossScaleOptimizer` around it.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._in_step = _in_step_of(optimizer)
        if self._in_step is not None:
            self._in_step.reset()
        # The variables that `_multiply` was made for.
        self._scaled: list[int] = []
        self._multiply: Any = None

    def scale(self, factor: float) -> None:
        """Multiplies all momentum by `factor` before the next update."""
        if self._in_step is not None:
            self._in_step.multiply(factor)
            return
        momentums = compat.momentums(self._optimizer)
        if not momentums:
            return
        variables = [backend.storage(momentum) for momentum in momentums]
        identities = [id(variable) for variable in variables]
        if identities != self._scaled:

            def multiply_all(factor: Tensor) -> None:
                for variable in variables:
                    _multiply(variable, factor)

            self._multiply = tf.function(multiply_all, autograph=False)
            self._scaled = identities
        self._multiply(tf.constant(factor, tf.float64))


def _multiply(variable: Variable, factor: Tensor) -> None:
    by = tf.cast(factor, variable.dtype)
    variable.assign(variable * by, read_value=False)


def _nothing() -> None:
    """Does nothing: the other branch of the condition."""


class _ScaledInStep:
    """The factor for the next step, which that step resets to 1.

    A step multiplies each momentum variable by `optimizer.momentum` anyway. If
    it uses that number for nothing else, the number is replaced by its product
    with the factor, and no further operation is needed for each variable.

    Args:
        optimizer: The optimizer, whose updates are hooked.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        with tf.init_scope():
            self._factor = tf.Variable(1.0, trainable=False, dtype=tf.float64)
        self._optimizer = optimizer
        # Bypasses the optimizer's own `__setattr__`, which tracks attributes.
        update = getattr(optimizer, compat.UPDATES)
        object.__setattr__(optimizer, compat.UPDATES, self._hooked(update))

    def multiply(self, factor: float) -> None:
        """Multiplies the current factor by another one.

        It does not set the factor, because a step with an overflow does not
        update, and leaves the factor to the next step.
        """
        backend.write_scalar(
            self._factor, backend.read_scalar(self._factor) * factor
        )

    def reset(self) -> None:
        """Resets a factor that no step has used.

        A program that goes on after an error may have restored the momentum.
        """
        backend.write_scalar(self._factor, 1.0)

    def _hooked(self, update: Callable[..., Any]) -> Callable[..., Any]:
        @do_not_convert
        @functools.wraps(update)
        def scaled_update(*args: Any, **kwargs: Any) -> Any:
            if not _only_scales_by_momentum(self._optimizer):
                tf.cond(self._factor != 1.0, self._multiply_all, _nothing)
                return update(*args, **kwargs)
            with self._in_use():
                result = update(*args, **kwargs)
            self._factor.assign(1.0, read_value=False)
            return result

        return scaled_update

    def _multiply_all(self) -> None:
        for momentum in compat.momentums(self._optimizer):
            _multiply(backend.storage(momentum), self._factor)
        self._factor.assign(1.0, read_value=False)

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        plain = self._optimizer.momentum
        made: dict[tuple[int, DType], Tensor] = {}

        def scaled(dtype: DType) -> Tensor:
            # Made once for each graph and dtype, not for each variable.
            key = (id(tf.compat.v1.get_default_graph()), dtype)
            if key not in made or tf.executing_eagerly():
                # Rounded as by the optimizer: to float32 without a dtype.
                rounded = tf.convert_to_tensor(plain, dtype)
                product = tf.cast(rounded, tf.float64) * self._factor
                made[key] = (
                    product if dtype is None else tf.cast(product, dtype)
                )
            return made[key]

        number = _Number(plain)
        number.tensor = scaled
        object.__setattr__(self._optimizer, "momentum", number)
        try:
            yield
        finally:
            object.__setattr__(self._optimizer, "momentum", plain)


def _in_step_of(optimizer: Optimizer) -> _ScaledInStep | None:
    """Returns an object that scales in all steps of an optimizer, or `None`."""
    found: _ScaledInStep | None = getattr(optimizer, _IN_STEP, None)
    if found is None and not (
        # In a job of one rank it is unknown whether a plain optimizer was used.
        not isinstance(optimizer, CopyableMixin)
        or reduction_guard.has_applied(optimizer)
        or not compat.can_scale_in_step(optimizer)
    ):
        found = _ScaledInStep(optimizer)
        object.__setattr__(optimizer, _IN_STEP, found)
    return found


def _only_scales_by_momentum(optimizer: Optimizer) -> bool:
    """Returns whether a step uses `optimizer.momentum` just once, to scale.

    With `nesterov` a step uses the number twice.
    """
    known = (
        keras.optimizers.SGD.update_step,
        keras.optimizers.RMSprop.update_step,
    )
    return type(optimizer).update_step in known and not getattr(
        optimizer, "nesterov", False
    )


class _Number(float):
    """A number that converts to a tensor of another value."""

    # Keras reads it, and converts the number to the other operand's dtype.
    dtype = float
    tensor: Callable[[DType], Tensor]

    def __tf_tensor__(
        self, dtype: DType = None, name: str | None = None
    ) -> Tensor:
        return self.tensor(dtype)
