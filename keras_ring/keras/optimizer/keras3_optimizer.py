"""Keras 3 optimizers that reduce.

Where gradients are reduced:

* at the top of `apply` or `apply_gradients`, whichever is called first: before
  clipping, weight decay, the moving average of weights, and code of the
  program's class in these methods;
* with `gradient_accumulation_steps`, when the accumulated gradients are about
  to be used, that is once in so many steps; but in each step if the program's
  class has methods that see the gradients of a step, or if steps are on parts
  of one batch (`--auto`), because accumulated gradients may be saved;
* under a `LossScaleOptimizer`, before it tests for an overflow. It calls the
  inner optimizer only if all gradients are finite. If they were reduced inside,
  a rank with an overflow would skip the step and the others would wait for it.
  If they are reduced before, an infinity reaches every rank, and all skip the
  step together.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import keras

from keras_ring._typing import (
    Gradient,
    GradsAndVars,
    Optimizer,
    Tensor,
    Variable,
)
from keras_ring.core import process_sets, topology
from keras_ring.keras import scope
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.loss_scaling import inner_optimizer
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import (
    divergence,
    early_reduction,
    initial_values,
    local_updates,
    optimizer_state,
    reduction_guard,
    weighted_losses,
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

_PURPOSE = "gradients are reduced before they are tested for overflow"
# The methods of an optimizer that get the gradients of a step before it
# accumulates them.
_OF_EACH_STEP = ("apply", "apply_gradients", "_backend_apply_gradients")


def distribute(optimizer: Optimizer, settings: ReductionSettings) -> None:
    """Makes a Keras 3 optimizer reduce."""
    _reduce_before_test()
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        distribute(optimizer.inner_optimizer, settings)
        change_class(optimizer, _Keras3CopyableMixin, settings, keras)
        return
    _accumulate(optimizer, settings)
    change_class(optimizer, _Keras3ReducingMixin, settings, keras)


def _accumulate(optimizer: Optimizer, settings: ReductionSettings) -> None:
    """Sets `gradient_accumulation_steps` to the number of passes."""
    passes = settings.backward_passes_per_step
    present = optimizer.gradient_accumulation_steps
    if passes == 1 or present == passes:
        return
    if present is not None:
        raise ValueError(
            "`gradient_accumulation_steps` of Keras and "
            "`backward_passes_per_step` of keras_ring are the same thing, and "
            f"this optimizer has {present} of the former. Received: "
            f"backward_passes_per_step={passes}"
        )
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        raise ValueError(
            "A `MultiOptimizer` does not accumulate gradients. Set "
            "`gradient_accumulation_steps` of the optimizers in it. Received: "
            f"backward_passes_per_step={passes}"
        )
    if optimizer.built:
        raise ValueError(
            "An optimizer that has been used has no place for accumulated "
            "gradients among its variables. Make a new one, or use "
            "`backward_passes_per_step` from the beginning. Received: "
            f"backward_passes_per_step={passes}"
        )
    optimizer.gradient_accumulation_steps = passes


class _Keras3CopyableMixin(CopyableMixin):
    """Keeps an optimizer distributed when it is pickled."""

    _distribute = staticmethod(distribute)

    def __reduce__(self) -> tuple[Any, ...]:
        construct, arguments = cast(Any, super().__reduce__())
        # Pickle cannot find the class of this class method by name, so the
        # method of the wrapped class is used.
        construct = getattr(self._wrapped_class, construct.__name__)
        paths = local_variables_of(self).paths()
        return _restore, (construct, arguments, self._settings, paths)


def _restore(
    construct: Callable[..., Optimizer],
    arguments: tuple[Any, ...],
    settings: ReductionSettings,
    local_paths: list[str],
) -> Optimizer:
    """Reconstructs an optimizer from the arguments of `__reduce__`."""
    return distributed_again(
        construct(*arguments), settings, distribute, local_paths
    )


class _Keras3ReducingMixin(_Keras3CopyableMixin, ReducingMixin):
    """Reduces gradients before they are used."""

    gradient_accumulation_steps: int | None

    @backend.unconverted
    def apply_gradients(self, grads_and_vars: GradsAndVars) -> Any:
        keras_optimizer = cast(Any, super())
        pairs = list(grads_and_vars)

        def apply(
            gradients: Iterable[Gradient], variables: Iterable[Variable] | None
        ) -> Any:
            del variables
            return keras_optimizer.apply_gradients(
                [(g, v) for g, (_, v) in zip(gradients, pairs, strict=True)]
            )

        return _apply_reduced(
            self,
            self._settings,
            apply,
            [gradient for gradient, _ in pairs],
            [variable for _, variable in pairs],
        )

    @backend.unconverted
    def apply(
        self,
        grads: Iterable[Gradient],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> Any:
        keras_optimizer = cast(Any, super())
        return _apply_reduced(
            self,
            self._settings,
            keras_optimizer.apply,
            grads,
            trainable_variables,
        )

    def _clip_gradients(self, grads: Sequence[Gradient]) -> list[Gradient]:
        # Keras calls this with the accumulated gradients when they are about
        # to be used, in a branch that depends on the number of the step, which
        # all ranks share.
        settings = self._settings
        if (pending := scope.current().accumulated) is not None:
            sources, names = pending
            grads = _reduced_if_used(self, grads, sources, settings, names)
        passes = settings.backward_passes_per_step
        if passes > 1 and not settings.average_aggregated_gradients:
            # Keras passes their average.
            grads = [
                backend.map_gradient(
                    lambda values: values * backend.cast(passes, values.dtype),
                    gradient,
                )
                for gradient in grads
            ]
        clipped: list[Gradient] = cast(Any, super())._clip_gradients(grads)
        return clipped


def _reduced_if_used(
    optimizer: Optimizer,
    gradients: Sequence[Gradient],
    sources: list[Variable],
    settings: ReductionSettings,
    names: Sequence[str],
) -> list[Gradient]:
    """Reduces accumulated gradients in the step that uses them."""
    local = local_variables_of(optimizer)

    def reduced() -> list[Gradient]:
        return reduce_gradients(gradients, sources, settings, names, local)

    if not backend.clips_each_step():
        return reduced()
    passes = optimizer.gradient_accumulation_steps
    is_used = (optimizer._iterations + 1) % passes == 0
    found: list[Gradient] = keras.ops.cond(
        is_used, reduced, lambda: list(gradients)
    )
    return found


def _apply_reduced(
    optimizer: Optimizer,
    settings: ReductionSettings,
    apply: Callable[..., Any],
    gradients: Iterable[Gradient],
    variables: Iterable[Variable] | None,
) -> Any:
    """Reduces `gradients` and applies them, now or after the last pass."""
    if reduction_guard.is_reduced() or topology.stays_alone():
        return apply(gradients, variables)
    if process_sets.shares_nothing(settings.process_set):
        with reduction_guard.reduced():
            return apply(gradients, variables)
    own: list[Gradient] = list(gradients)
    if variables is not None:
        variables = list(variables)
    sources = variables or getattr(optimizer, "_trainable_variables", [])
    if len(own) != len(sources):
        # Nothing to apply, or a mistake, for which Keras raises an error.
        with reduction_guard.reduced():
            return apply(own, variables)

    weighted_losses.check_losses(settings, f"Optimizer {optimizer.name!r}")
    reduction_guard.require_unreduced(optimizer, own, sources)
    if settings.whole_batch:
        step = reduction_guard.require_step(optimizer)
        if step is not None:
            own = step.scale(own)
            if step.captured is not None:
                step.captured.extend(zip(sources, own, strict=True))
                return None
    local = local_variables_of(optimizer)
    updated = [
        source
        for gradient, source in zip(own, sources, strict=True)
        # A step that is not traced may go another way on each rank.
        if gradient is not None or not backend.traces_steps()
    ]

    def update() -> Any:
        return _reduce_and_apply(
            optimizer, settings, apply, own, variables, sources
        )

    if backend.is_eager():
        optimizer_state.build(optimizer, sources)
    with initial_values.compared(updated, settings.process_set, local):
        if local_updates.are_allowed():
            return update()
        return divergence.updating(
            optimizer,
            updated,
            settings.process_set,
            update,
            local=local,
            passes=_passes(optimizer),
        )


def _passes(optimizer: Optimizer) -> int:
    """Returns the number of calls of an optimizer for one update."""
    inner = inner_optimizer(optimizer)
    return int(inner.gradient_accumulation_steps or 1)


def _reduce_and_apply(
    optimizer: Optimizer,
    settings: ReductionSettings,
    apply: Callable[..., Any],
    gradients: list[Gradient],
    variables: Sequence[Variable] | None,
    sources: list[Variable],
) -> Any:
    local = local_variables_of(optimizer)
    if settings.elastic:
        return _reduce_and_commit(
            optimizer, settings, apply, gradients, variables, sources
        )
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        if _adds_up_first(optimizer.inner_optimizer, settings):
            # The inner optimizer reduces only in the last of several steps.
            # But each step decides whether it counts at all.
            gradients = agree_on_overflow(
                gradients, sources, settings.process_set
            )
            return apply(gradients, variables)
    elif _adds_up_first(optimizer, settings):
        gradients = _overwritten_reduced(gradients, sources, settings)
        with reduction_guard.reduced(), _reduce_on_update(gradients, sources):
            return apply(gradients, variables)

    gradients = early_reduction.begun(
        optimizer, gradients, sources, settings, local
    )
    done = early_reduction.reduced_by(optimizer, gradients, sources)
    gradients = reduce_gradients(
        gradients, sources, settings, local=local, done=done
    )
    if local and isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        gradients = agree_on_overflow(gradients, sources, settings.process_set)
    with reduction_guard.reduced():
        result = apply(gradients, variables)
    early_reduction.end_step(optimizer)
    return result


def _reduce_and_commit(
    optimizer: Optimizer,
    settings: ReductionSettings,
    apply: Callable[..., Any],
    gradients: list[Gradient],
    variables: Sequence[Variable] | None,
    sources: list[Variable],
) -> None:
    """Reduces gradients, and applies them if the step counts."""
    if _passes(optimizer) > 1:
        raise NotImplementedError(
            "An elastic optimizer has no accumulation of gradients yet. "
            f"Received: {_passes(optimizer)} passes per update of "
            f"{optimizer.name!r}. Make it distributed with `elastic=False`."
        )
    if local_variables_of(optimizer):
        raise NotImplementedError(
            "An elastic optimizer has no local variables yet, and variables "
            f"were registered as local in {optimizer.name!r}. Make it "
            "distributed with `elastic=False`."
        )
    names = gradient_names(sources)
    group = names[0]
    reduced = reduce_gradients(
        gradients, sources, settings, names, commit_group=group
    )

    def use() -> None:
        with reduction_guard.reduced():
            apply(reduced, variables)

    backend.use_if([backend.committed(group, reduced)], use)


def _adds_up_first(optimizer: Optimizer, settings: ReductionSettings) -> bool:
    """Returns whether gradients are accumulated before they are reduced.

    They are not if the program was written for one process: it may save its
    optimizer at any step, and the accumulated gradients must be those of whole
    batches.
    """
    return bool(
        optimizer.gradient_accumulation_steps
        and not settings.whole_batch
        and not _sees_each_step(optimizer)
    )


def _sees_each_step(optimizer: Optimizer) -> bool:
    """Returns whether a method of the program sees gradients of each step."""
    for method in _OF_EACH_STEP:
        for each in optimizer._wrapped_class.__mro__:
            if method in vars(each):
                if not each.__module__.startswith("keras."):
                    return True
                break
    return False


@contextlib.contextmanager
def _reduce_on_update(
    gradients: list[Gradient], sources: list[Variable]
) -> Iterator[None]:
    """Announces to `_clip_gradients` the gradients that it will get."""
    accumulated = [
        source
        for gradient, source in zip(gradients, sources, strict=True)
        if gradient is not None and not _is_overwritten(source)
    ]
    with scope.inside(accumulated=(accumulated, gradient_names(accumulated))):
        yield


def _is_overwritten(variable: Variable) -> bool:
    return bool(getattr(variable, "overwrite_with_gradient", False))


def _overwritten_reduced(
    gradients: list[Gradient],
    sources: list[Variable],
    settings: ReductionSettings,
) -> list[Gradient]:
    """Reduces gradients that Keras assigns to variables at each step."""
    if not any(_is_overwritten(source) for source in sources):
        return gradients
    picked = [
        gradient if _is_overwritten(source) else None
        for gradient, source in zip(gradients, sources, strict=True)
    ]
    return [
        gradient if reduced is None else reduced
        for gradient, reduced in zip(
            gradients,
            reduce_gradients(picked, sources, settings),
            strict=True,
        )
    ]


def _reduce_before_test() -> None:
    """Makes `LossScaleOptimizer` reduce before it tests for an overflow.

    `model.compile` wraps its optimizer in a `LossScaleOptimizer` if the policy
    is `mixed_float16`. The inner optimizer does not know that, and is called
    too late, so the class itself has to be changed. It behaves as before with
    an optimizer that is not distributed.
    """
    hooks.subscribe(
        events.SCALED_APPLIED, _reduces_first, ring=Ring.JOB, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.SCALED_STATE_APPLIED,
        _reduces_values_first,
        ring=Ring.JOB,
        purpose=_PURPOSE,
    )


def _reduces_first(apply: Callable[..., Any]) -> Callable[..., Any]:
    @backend.unconverted
    @functools.wraps(apply)
    def reduce_and_apply(
        self: Optimizer,
        grads: Iterable[Gradient],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> Any:
        settings = getattr(self.inner_optimizer, "_settings", None)
        if settings is None:
            return apply(self, grads, trainable_variables)
        return _apply_reduced(
            self,
            settings,
            functools.partial(apply, self),
            grads,
            trainable_variables,
        )

    return cast(Callable[..., Any], reduce_and_apply)


def _reduces_values_first(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def reduce_and_apply(
        self: Optimizer,
        optimizer_variables: Sequence[Tensor],
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Tensor],
    ) -> Any:
        def apply_reduced(
            gradients: Iterable[Gradient], variables: Iterable[Variable] | None
        ) -> Any:
            del variables
            return apply(
                self, optimizer_variables, list(gradients), trainable_variables
            )

        settings = getattr(self.inner_optimizer, "_settings", None)
        if settings is None:
            return apply_reduced(grads, None)
        return _apply_reduced(self, settings, apply_reduced, grads, None)

    return cast(Callable[..., Any], reduce_and_apply)
