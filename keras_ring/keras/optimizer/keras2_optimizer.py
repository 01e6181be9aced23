"""Keras 2 optimizers that reduce, of `tf.keras` up to 2.15 and `tf_keras`.

Gradients are reduced at the top of `apply_gradients`, that is before clipping
and weight decay. Under a `LossScaleOptimizer` they are reduced before it tests
for an overflow, as in Keras 3 (`keras3_optimizer`). Keras 2 does not accumulate
gradients, so this module does, and `iterations` counts steps in which they are
used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy.typing as npt
import tensorflow as tf

from keras_ring._typing import (
    Gradient,
    GradsAndVars,
    Optimizer,
    Tensor,
    Variable,
)
from keras_ring.keras import scope
from keras_ring.keras.lanes import (
    events,
    families,
    hooks,
    keras2_variables,
)
from keras_ring.keras.lanes.loss_scaling import inner_optimizer
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import (
    divergence,
    initial_values,
    keras2_own_methods,
    local_updates,
    optimizer_state,
    reduction_guard,
)
from keras_ring.keras.optimizer.local_variables import local_variables_of
from keras_ring.keras.optimizer.mixin import (
    CopyableMixin,
    ReducingMixin,
    change_class,
    distributed_again,
)
from keras_ring.keras.optimizer.reduction import (
    ReductionSettings,
    agree_on_overflow,
    gradient_names,
    reduce_gradients,
)
from keras_ring.tensorflow.accumulator import Accumulator
from keras_ring.tensorflow.autograph import do_not_convert


def distribute(optimizer: Optimizer, settings: ReductionSettings) -> None:
    """Makes a Keras 2 optimizer reduce."""
    keras: Any = families.keras2_of(optimizer)
    _reduce_before_test()
    if isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer):
        distribute(optimizer.inner_optimizer, settings)
        change_class(optimizer, _Keras2CopyableMixin, settings, keras)
    elif isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        change_class(optimizer, _LegacyReducingMixin, settings, keras)
    else:
        change_class(optimizer, _Keras2ReducingMixin, settings, keras)


class _Keras2CopyableMixin(CopyableMixin):
    """Keeps an optimizer distributed when it is copied.

    Keras 2 copies optimizers by their configuration alone. Here the state is
    copied, too, and is assigned as soon as the copy has its variables.
    """

    _distribute = staticmethod(distribute)

    def __reduce__(self) -> tuple[Any, ...]:
        optimizer = cast(Any, self)
        config = optimizer.get_config()
        inner = inner_optimizer(optimizer)
        state = [v.numpy() for v in keras2_variables.variables_of(inner)]
        paths = local_variables_of(self).paths()
        return _restore, (
            self._wrapped_class,
            config,
            self._settings,
            paths,
            state,
        )

    def __deepcopy__(self, memo: object) -> Optimizer:
        # Legacy optimizers have another `__deepcopy__`, which some cannot use.
        del memo
        restore, arguments = self.__reduce__()
        return restore(*arguments)


def _restore(
    wrapped_class: type[Any],
    config: dict[str, Any],
    settings: ReductionSettings,
    local_paths: list[str],
    state: list[npt.NDArray[Any]],
) -> Optimizer:
    """Reconstructs an optimizer from the arguments of `__reduce__`."""
    optimizer = wrapped_class.from_config(config)
    optimizer = distributed_again(optimizer, settings, distribute, local_paths)
    inner = inner_optimizer(optimizer)
    object.__setattr__(inner, "_state_to_come", state)
    # At once: a schedule computes the first learning rate before the build.
    inner.iterations.assign(state[0])
    return optimizer


class _ReducingMixin(_Keras2CopyableMixin, ReducingMixin):
    """Reduces gradients before they are used."""

    _state_to_come: list[npt.NDArray[Any]] | None = None

    @do_not_convert
    def minimize(self, *args: Any, **kwargs: Any) -> Any:
        minimize = cast(Any, super()).minimize
        given = keras2_own_methods.with_tape(self, minimize, args, kwargs)
        if given is None:
            return minimize(*args, **kwargs)
        with scope.inside(minimizing=_Minimizing(self, given.is_comparison)):
            arguments = given.arguments
            return minimize(*arguments.args, **arguments.kwargs)

    @do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        apply = _with_pairs_first(
            cast(Any, super()).apply_gradients, args, kwargs
        )
        minimizing = scope.current().minimizing
        if minimizing is not None and minimizing.optimizer is self:
            if minimizing.is_comparison:
                return cast(Any, self).iterations
            # A tape has reduced these gradients.
            return apply(grads_and_vars)
        return _apply_reduced(self, self, apply, grads_and_vars)

    def _assign_state_to_come(self) -> None:
        state, self._state_to_come = self._state_to_come, None
        if state is None:
            return
        variables = keras2_variables.variables_of(self)
        # There are fewer values if it was copied before it was built.
        for variable, value in zip(variables, state, strict=False):
            variable.assign(value)


class _Keras2ReducingMixin(_ReducingMixin):
    """The mixin for `keras.optimizers.Optimizer`."""

    def build(self, var_list: Sequence[Variable]) -> None:
        cast(Any, super()).build(var_list)
        self._assign_state_to_come()


class _LegacyReducingMixin(_ReducingMixin):
    """The mixin for `keras.optimizers.legacy.Optimizer`."""

    def _create_all_weights(self, var_list: Sequence[Variable]) -> None:
        cast(Any, super())._create_all_weights(var_list)
        self._assign_state_to_come()


class _Minimizing(NamedTuple):
    optimizer: Optimizer
    is_comparison: bool


def _with_pairs_first(
    apply: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[GradsAndVars], Any]:
    return lambda pairs: apply(pairs, *args, **kwargs)


def _apply_reduced(
    optimizer: Optimizer,
    reducer: Optimizer,
    apply: Callable[[GradsAndVars], Any],
    grads_and_vars: GradsAndVars,
) -> Any:
    """Reduces gradients and applies them, now or in a later pass.

    Args:
        optimizer: The optimizer, or the `LossScaleOptimizer` around it.
        reducer: The optimizer.
        apply: Function of pairs of reduced gradients and variables.
        grads_and_vars: Pairs of gradients and variables.
    """
    pairs = [(g, v) for g, v in grads_and_vars if g is not None]
    if reduction_guard.is_reduced() or not pairs:
        return apply(pairs or grads_and_vars)
    settings = reducer._settings
    gradients, sources = (list(column) for column in zip(*pairs, strict=True))
    reduction_guard.require_unreduced(optimizer, gradients, sources)
    if settings.whole_batch:
        step = reduction_guard.require_step(optimizer)
        if step is not None:
            gradients = step.scale(gradients)
            if step.captured is not None:
                step.captured.extend(zip(sources, gradients, strict=True))
                return optimizer.iterations
    names: list[str] = []

    def reduce_and_apply(gradients: list[Gradient]) -> Any:
        local = local_variables_of(reducer)
        reduced = reduce_gradients(gradients, sources, settings, names, local)
        if local and optimizer is not reducer:
            reduced = agree_on_overflow(reduced, sources, settings.process_set)
        with reduction_guard.reduced():
            return apply(list(zip(reduced, sources, strict=True)))

    def update() -> Any:
        if settings.backward_passes_per_step == 1:
            return reduce_and_apply(gradients)
        keras2_variables.build(optimizer, sources)
        return _accumulated(
            optimizer, reducer, gradients, sources, reduce_and_apply
        )

    if tf.executing_eagerly() and settings.process_set.size() > 1:
        optimizer_state.build(optimizer, sources)
    local = local_variables_of(reducer)
    with initial_values.compared(sources, settings.process_set, local):
        # Names by the paths that the ranks have agreed on.
        names += gradient_names(sources)
        if local_updates.are_allowed():
            return update()
        return divergence.updating(
            optimizer,
            sources,
            settings.process_set,
            update,
            local=local,
            passes=settings.backward_passes_per_step,
        )


def _accumulated(
    optimizer: Optimizer,
    reducer: Optimizer,
    gradients: list[Gradient],
    sources: list[Variable],
    reduce_and_apply: Callable[[list[Gradient]], Any],
) -> Variable:
    """Adds up gradients, and uses them after the last pass."""
    accumulator = _accumulator_of(reducer)

    def update() -> Tensor:
        done = reduce_and_apply(accumulator.take(sources))
        with tf.control_dependencies(
            [] if tf.executing_eagerly() or done is None else [done]
        ):
            return tf.constant(True)

    tf.cond(
        accumulator.add(gradients, sources), update, lambda: tf.constant(False)
    )
    return optimizer.iterations


def _accumulator_of(reducer: Optimizer) -> Accumulator:
    if not hasattr(reducer, "_passes"):
        settings = reducer._settings
        accumulator = Accumulator(
            settings.backward_passes_per_step,
            settings.average_aggregated_gradients,
        )
        # Bypasses the tracking of attributes, because it must not be saved.
        object.__setattr__(reducer, "_passes", accumulator)
    found: Accumulator = reducer._passes
    return found


def _reduce_before_test() -> None:
    """Makes both `LossScaleOptimizer` reduce before the test for overflow.

    `model.compile` wraps its optimizer in one of them if the policy is
    `mixed_float16`. They behave as before with an optimizer that is not
    distributed.
    """
    hooks.subscribe(
        events.SCALED_PAIRS_APPLIED,
        _reduces_first,
        ring=Ring.JOB,
        purpose="gradients are reduced before they are tested for overflow",
    )


def _reduces_first(apply: Callable[..., Any]) -> Callable[..., Any]:
    @do_not_convert
    @functools.wraps(apply)
    def reduce_and_apply(
        self: Optimizer,
        grads_and_vars: GradsAndVars,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        inner = self.inner_optimizer
        apply_own = _with_pairs_first(
            functools.partial(apply, self), args, kwargs
        )
        if not isinstance(inner, ReducingMixin):
            return apply_own(grads_and_vars)
        return _apply_reduced(self, inner, apply_own, grads_and_vars)

    return cast(Callable[..., Any], reduce_and_apply)
