"""`tf.compat.v1.train` optimizers that reduce.

Gradients are reduced by `compute_gradients` of TensorFlow. So a program sees
reduced gradients before `apply_gradients`, in a method of its own class or
outside of it, for example to clip them by the global norm. Gradients that were
not computed there are reduced by `compute_gradients` of the program's class, or
else by `apply_gradients`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, SupportsIndex, cast

import tensorflow as tf

from keras_ring._typing import (
    Gradient,
    GradsAndVars,
    Operation,
    Optimizer,
    Tensor,
    Variable,
)
from keras_ring.keras.optimizer import (
    divergence,
    initial_values,
    local_updates,
    reduction_guard,
)
from keras_ring.keras.optimizer.local_variables import local_variables_of
from keras_ring.keras.optimizer.mixin import (
    ReducingMixin,
    change_class,
    distributed_again,
)
from keras_ring.keras.optimizer.reduction import (
    ReductionSettings,
    gradient_names,
    reduce_gradients,
)
from keras_ring.tensorflow.accumulator import Accumulator


def distribute(optimizer: Optimizer, settings: ReductionSettings) -> None:
    """Makes a `tf.compat.v1.train.Optimizer` reduce."""
    change_class(optimizer, _V1ReducingMixin, settings, None, _ReducingSource)
    object.__setattr__(optimizer, "_pending", _Pending(settings))


class _Pending:
    """State between `compute_gradients` and `apply_gradients`."""

    def __init__(self, settings: ReductionSettings) -> None:
        self.reduced: set[Hashable] = set()
        # Whether this is the last of several passes, which uses the gradients.
        self.is_update: Tensor = None
        self.accumulator = Accumulator(
            settings.backward_passes_per_step,
            settings.average_aggregated_gradients,
        )


class _V1ReducingMixin(ReducingMixin):
    """Reduces gradients as they are computed."""

    _distribute = staticmethod(distribute)

    _pending: _Pending

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        _, _, state, *rest = cast(Any, object.__reduce_ex__(self, protocol))
        state = {
            name: value
            for name, value in state.items()
            if name not in ("_pending", "_local_variables")
        }
        paths = local_variables_of(self).paths()
        arguments = (self._wrapped_class, self._settings, paths)
        return _restore, arguments, state, *rest

    def compute_gradients(
        self, *args: Any, **kwargs: Any
    ) -> list[tuple[Gradient, Variable]]:
        compute = cast(Any, super()).compute_gradients
        self._pending.reduced = set()
        pairs: list[tuple[Gradient, Variable]] = compute(*args, **kwargs)
        if reduction_guard.is_reduced() or self._pending.reduced:
            return pairs
        # A class of the program that computes gradients itself.
        return self._reduce_computed(pairs)

    def _reduce_computed(
        self, pairs: GradsAndVars
    ) -> list[tuple[Gradient, Variable]]:
        """Returns the pairs reduced, and marks them for `apply_gradients`."""
        pairs = self._reduced(pairs)
        self._pending.reduced |= {
            variable.ref()
            for gradient, variable in pairs
            if gradient is not None
        }
        return pairs

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        *args: Any,
        **kwargs: Any,
    ) -> Operation:
        apply = cast(Any, super()).apply_gradients
        pairs = list(grads_and_vars)
        if reduction_guard.is_reduced():
            return apply(pairs, *args, **kwargs)
        missing = [
            (gradient, variable)
            for gradient, variable in pairs
            if variable.ref() not in self._pending.reduced
        ]
        if any(gradient is not None for gradient, _ in missing):
            found = {v.ref(): g for g, v in self._reduced(missing)}
            pairs = [(found.get(v.ref(), g), v) for g, v in pairs]
        self._pending.reduced = set()

        def update() -> Operation:
            with reduction_guard.reduced():
                return apply(pairs, *args, **kwargs)

        is_update, self._pending.is_update = self._pending.is_update, None

        def update_and_tell() -> Tensor:
            done = update()
            with tf.control_dependencies(
                [] if tf.executing_eagerly() else [done]
            ):
                return tf.constant(True)

        def update_if_it_is_time() -> Operation:
            if is_update is None:
                return update()
            told = tf.cond(
                is_update, update_and_tell, lambda: tf.constant(False)
            )
            return told if tf.executing_eagerly() else told.op

        if local_updates.are_allowed():
            return update_if_it_is_time()
        return divergence.updating(
            self,
            [v for g, v in pairs if g is not None],
            self._settings.process_set,
            update_if_it_is_time,
            local=local_variables_of(self),
            passes=self._settings.backward_passes_per_step,
        )

    def _reduced(self, pairs: GradsAndVars) -> list[tuple[Gradient, Variable]]:
        """Returns the pairs with their gradients reduced."""
        settings = self._settings
        present = [(g, v) for g, v in pairs if g is not None]
        if not present:
            return list(pairs)
        gradients, sources = (list(each) for each in zip(*present, strict=True))
        reduction_guard.require_unreduced(self, gradients, sources)
        names: list[str] = []

        def reduce(gradients: list[Gradient]) -> list[Gradient]:
            return reduce_gradients(
                gradients, sources, settings, names, local_variables_of(self)
            )

        def accumulate_and_reduce() -> list[Gradient]:
            if settings.backward_passes_per_step == 1:
                return reduce(gradients)
            accumulator = self._pending.accumulator
            is_update = accumulator.add(gradients, sources)
            self._pending.is_update = is_update
            found: list[Gradient] = tf.cond(
                is_update,
                lambda: reduce(accumulator.take(sources)),
                lambda: [tf.zeros_like(source) for source in sources],
            )
            return found

        with initial_values.compared(
            sources, settings.process_set, local_variables_of(self)
        ):
            # Names by the paths that the ranks have agreed on.
            names += gradient_names(sources)
            reduced = accumulate_and_reduce()
        by_source = {
            source.ref(): gradient
            for source, gradient in zip(sources, reduced, strict=True)
        }
        return [(by_source.get(v.ref()), v) for _, v in pairs]


class _ReducingSource(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Reduces gradients before a program's class can change them.

    In the method resolution order it comes after that class, and before the
    class of TensorFlow.
    """

    def compute_gradients(
        self, *args: Any, **kwargs: Any
    ) -> list[tuple[Gradient, Variable]]:
        pairs: list[tuple[Gradient, Variable]] = super().compute_gradients(
            *args, **kwargs
        )
        if reduction_guard.is_reduced():
            return pairs
        return cast(_V1ReducingMixin, self)._reduce_computed(pairs)


def _restore(
    wrapped_class: type[object],
    settings: ReductionSettings,
    local_paths: list[str],
) -> Optimizer:
    """Reconstructs an optimizer, without its state, after `__reduce_ex__`."""
    return distributed_again(
        wrapped_class.__new__(wrapped_class), settings, distribute, local_paths
    )
