"""Makes a Keras optimizer reduce its gradients over all ranks.

The optimizer is not wrapped in another one: it changes its class, to a
subclass of the class it has, with the same name. So it keeps its slots, its
iterations and its schedule, `isinstance` holds, and a saved model names an
optimizer that Keras knows.

Where gradients are reduced:

* at the top of `apply`, that is before clipping, weight decay and the moving
  average of weights;
* with `gradient_accumulation_steps`, when the accumulated gradients are about
  to be used, that is once in so many steps;
* under a `LossScaleOptimizer`, before it looks for an overflow. It calls the
  inner optimizer only if all gradients are finite. Were they reduced inside, a
  rank with an overflow would skip the step and the others would wait for it.
  Reduced before, an infinity reaches every rank, and all skip together.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import keras
import tensorflow as tf

from keras_ring import _reduction_guard, basics, ops, process_sets
from keras_ring._names import unique_names, variable_path
from keras_ring.compression import Compression, Compressor
from keras_ring.gradients import (
    ReductionSettings,
    gradient_names,
    map_gradient,
    reduce_gradients,
)
from keras_ring.process_sets import ProcessSet, global_process_set

_HOOKED = "_keras_ring_hooked"

# The gradients that an optimizer which accumulates will hand to its
# `_clip_gradients`: the variables they belong to, and their names.
_update_step: contextvars.ContextVar[tuple[list[Any], list[str]] | None] = (
    contextvars.ContextVar("keras_ring_update_step", default=None)
)


def DistributedOptimizer(
    optimizer: Any,
    op: Any = ops.Average,
    *,
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes an optimizer reduce its gradients over all ranks.

    The optimizer given is changed in place and returned. Whatever state it
    has, it keeps. It works in `model.fit` and in loops that call `apply` or
    `apply_gradients`. A model compiled with it and saved by `model.save`
    loads with plain Keras, with the state of the optimizer; use
    `kr.load_model` to go on training in a job.

    Do not use it together with `DistributedGradientTape`: the gradients would
    be reduced twice.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or the name of one. A
            `LossScaleOptimizer` may be given; it is also right to give its
            inner optimizer and to leave the rest to `model.compile`.
        op: How gradients are combined: `kr.Average`, `kr.Sum`, `kr.Min`,
            `kr.Max`, `kr.Product` or `kr.Adasum`. Defaults to `kr.Average`.
        compression: The number format of gradients on their way, one of
            `kr.Compression.none`, `kr.Compression.fp16` and
            `kr.Compression.bf16`. Defaults to `kr.Compression.none`.
        sparse_as_dense: Boolean. If `True`, `tf.IndexedSlices` (gradients of
            embeddings) are made dense and summed, otherwise their rows are
            gathered. Defaults to `False`.
        gradient_predivide_factor: Float. With `kr.Average`, gradients are
            divided by this before the sum and by the rest of the number of
            ranks after it. It keeps sums in float16 in range. Defaults to
            `1.0`.
        groups: Gradients that are reduced together or not at all: a number of
            groups to make, or a list of lists of variables. Defaults to
            `None`, which leaves it to the runtime what it joins.
        process_set: A `kr.ProcessSet` of which this rank is a member. Only
            its ranks take part, as where each process set trains a model of
            its own. Defaults to all ranks.

    Returns:
        `optimizer`, which now reduces.

    Raises:
        ValueError: If an argument has no meaning, alone or with the others.

    Example:
    ```python
    kr.init()
    optimizer = kr.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, loss="sparse_categorical_crossentropy")
    model.fit(...)
    ```
    """
    settings = ReductionSettings.validated(
        op,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    return make_distributed(keras.optimizers.get(optimizer), settings)


def make_distributed(optimizer: Any, settings: ReductionSettings) -> Any:
    """Changes the class of `optimizer` so that it reduces.

    Args:
        optimizer: A Keras optimizer, distributed already or not.
        settings: A `ReductionSettings`.

    Returns:
        `optimizer`.
    """
    _reduction_guard.install()
    _hook_loss_scale_optimizer()
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        make_distributed(optimizer.inner_optimizer, settings)
        mixin: Any = _KeepsSettings
    else:
        mixin = _Reduces
    wrapped_class: Any = type(optimizer)
    if issubclass(wrapped_class, _KeepsSettings):
        wrapped_class = wrapped_class._wrapped_class
    # `__class__` is set past the optimizer's own `__setattr__`, which tracks
    # what is assigned.
    object.__setattr__(
        optimizer,
        "__class__",
        _distributed_class(mixin, wrapped_class, settings),
    )
    return optimizer


def distributed_settings(optimizer: Any) -> ReductionSettings | None:
    """Returns how `optimizer` reduces, or `None` if it does not.

    Args:
        optimizer: A Keras optimizer. Keras puts a `LossScaleOptimizer` of its
            own around an optimizer; such a one counts as its inner one.
    """
    if isinstance(optimizer, _Reduces):
        return optimizer._settings
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return distributed_settings(optimizer.inner_optimizer)
    return None


@functools.cache
def _distributed_class(
    mixin: type, wrapped_class: type, settings: ReductionSettings
) -> type:
    """Makes the class, which saved files must not tell from the one wrapped.

    Keras writes the module and the name of the class of an optimizer, and the
    name it is registered under, if it is. A loader finds the wrapped class by
    them.
    """
    name = wrapped_class.__name__
    module = wrapped_class.__module__
    if getattr(keras.optimizers, name, None) is wrapped_class:
        module = "keras.optimizers"
    distributed_class = type(
        name,
        (mixin, wrapped_class),
        {
            "__module__": module,
            "__qualname__": wrapped_class.__qualname__,
            "__doc__": wrapped_class.__doc__,
            "_wrapped_class": wrapped_class,
            "_settings": settings,
        },
    )
    package, separator, registered = keras.saving.get_registered_name(
        wrapped_class
    ).rpartition(">")
    if separator:
        # The later registration is the one that loading goes by, so plain
        # Keras still gets the plain class.
        for each in (distributed_class, wrapped_class):
            keras.saving.register_keras_serializable(package, registered)(each)
    return distributed_class


class _KeepsSettings:
    """Keeps an optimizer distributed when it is copied."""

    _settings: ReductionSettings
    _wrapped_class: type

    @classmethod
    def from_config(cls, *args: Any, **kwargs: Any) -> Any:
        plain = cast(Any, cls._wrapped_class).from_config(*args, **kwargs)
        return make_distributed(plain, cls._settings)

    def __reduce__(self) -> Any:
        construct, arguments = cast(Any, super().__reduce__())
        # A class method of this class, which no pickle could find by name.
        construct = getattr(self._wrapped_class, construct.__name__)
        return _restore, (construct, arguments, self._settings)


def _restore(
    construct: Callable[..., Any],
    arguments: tuple[Any, ...],
    settings: ReductionSettings,
) -> Any:
    """Makes again what `__reduce__` took apart."""
    return make_distributed(construct(*arguments), settings)


class _Reduces(_KeepsSettings):
    """Reduces gradients before they are used."""

    gradient_accumulation_steps: int | None

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        keras_optimizer = cast(Any, super())
        return _apply_reduced(
            self,
            self._settings,
            keras_optimizer.apply,
            grads,
            trainable_variables,
        )

    def _clip_gradients(self, grads: Any) -> Any:
        # Keras calls this with the accumulated gradients, in the branch that
        # is taken when they are about to be used. The branch depends on the
        # number of the step, which all ranks share.
        if (pending := _update_step.get()) is not None:
            sources, names = pending
            grads = reduce_gradients(grads, sources, self._settings, names)
        return cast(Any, super())._clip_gradients(grads)


def _apply_reduced(
    optimizer: Any,
    settings: ReductionSettings,
    apply: Callable[..., Any],
    gradients: Any,
    variables: Any,
) -> Any:
    """Reduces `gradients` and applies them, or arranges for both."""
    if _reduction_guard.is_reduced() or basics.size() == 1:
        return apply(gradients, variables)
    if process_sets.is_alone(settings.process_set):
        with _reduction_guard.reduced():
            return apply(gradients, variables)
    gradients = list(gradients)
    if variables is not None:
        variables = list(variables)
    sources = variables or getattr(optimizer, "_trainable_variables", [])
    if len(gradients) != len(sources):
        # Nothing to apply, or a mistake. Keras has the words for it.
        with _reduction_guard.reduced():
            return apply(gradients, variables)

    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        if optimizer.inner_optimizer.gradient_accumulation_steps:
            # The inner optimizer reduces, once in so many steps. But whether
            # a step counts at all is decided at each.
            return apply(
                _agree_on_overflow(
                    optimizer, gradients, sources, settings.process_set
                ),
                variables,
            )
    elif optimizer.gradient_accumulation_steps:
        gradients = _overwritten_reduced(gradients, sources, settings)
        with _reduction_guard.reduced(), _reduce_on_update(gradients, sources):
            return apply(gradients, variables)

    gradients = reduce_gradients(gradients, sources, settings)
    with _reduction_guard.reduced():
        return apply(gradients, variables)


@contextlib.contextmanager
def _reduce_on_update(
    gradients: list[Any], sources: list[Any]
) -> Iterator[None]:
    """Tells `_clip_gradients` what it will be called with."""
    accumulated = [
        source
        for gradient, source in zip(gradients, sources, strict=True)
        if gradient is not None and not _is_overwritten(source)
    ]
    token = _update_step.set((accumulated, gradient_names(accumulated)))
    try:
        yield
    finally:
        _update_step.reset(token)


def _is_overwritten(variable: Any) -> bool:
    return bool(getattr(variable, "overwrite_with_gradient", False))


def _overwritten_reduced(
    gradients: list[Any], sources: list[Any], settings: ReductionSettings
) -> list[Any]:
    """Reduces what Keras assigns to variables instead of accumulating it."""
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


def _agree_on_overflow(
    loss_scale_optimizer: Any,
    gradients: list[Any],
    sources: list[Any],
    process_set: ProcessSet,
) -> list[Any]:
    """Makes an overflow on one rank an overflow on all of them."""
    present = [i for i, g in enumerate(gradients) if g is not None]
    if not present:
        return gradients
    finite = tf.cast(loss_scale_optimizer.check_finite(gradients), tf.int32)
    (name,) = unique_names("finite", [variable_path(sources[0]) or "source_0"])
    finite = (
        ops.allreduce(finite, op=ops.Min, name=name, process_set=process_set)
        > 0
    )
    first = present[0]
    gradients[first] = map_gradient(
        lambda values: tf.where(
            finite, values, tf.constant(float("nan"), values.dtype)
        ),
        gradients[first],
    )
    return gradients


def _hook_loss_scale_optimizer() -> None:
    """Has `LossScaleOptimizer` reduce before it looks for an overflow.

    `model.compile` puts a `LossScaleOptimizer` around the optimizer it is
    given if the policy is `mixed_float16`. The inner optimizer is not told,
    and is called too late, so the class itself has to be changed. It behaves
    as before around an optimizer that is not distributed.
    """
    loss_scale_class = keras.optimizers.LossScaleOptimizer
    apply = loss_scale_class.apply
    if hasattr(apply, _HOOKED):
        return

    @functools.wraps(apply)
    def reduce_and_apply(
        self: Any, grads: Any, trainable_variables: Any = None
    ) -> Any:
        settings = distributed_settings(self)
        if settings is None:
            return apply(self, grads, trainable_variables)
        return _apply_reduced(
            self,
            settings,
            functools.partial(apply, self),
            grads,
            trainable_variables,
        )

    hooked = tf.autograph.experimental.do_not_convert(reduce_and_apply)
    setattr(hooked, _HOOKED, True)
    loss_scale_class.apply = hooked
