"""Keras 2 optimizers whose class changes gradients before `apply_gradients`.

Such a class overrides `minimize` or `compute_gradients`. These methods see
gradients before `apply_gradients` would reduce them. The gradients of one rank
differ from those of one process, so the tape reduces them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NamedTuple

import tensorflow as tf

from keras_ring._typing import Optimizer, Structure, Tensor
from keras_ring.core import process_sets
from keras_ring.keras.optimizer import reduction_guard
from keras_ring.keras.optimizer.local_variables import local_variables_of
from keras_ring.keras.optimizer.reduction import ReductionSettings
from keras_ring.keras.optimizer.tape import DistributedGradientTape
from keras_ring.keras.optimizer.whole_batch import Step

_METHODS = ("minimize", "compute_gradients", "_compute_gradients")


class Given(NamedTuple):
    """The arguments of a call of `minimize`.

    Args:
        arguments: Its arguments, with a tape that reduces.
        is_comparison: Boolean, whether the step only captures gradients and
            must not update.
    """

    arguments: inspect.BoundArguments
    is_comparison: bool


def with_tape(
    optimizer: Optimizer,
    minimize: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Given | None:
    """Makes the tape reduce if the program's class changes its gradients.

    Args:
        optimizer: An optimizer that reduces.
        minimize: The method of its class.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        The arguments to call it with, or `None` if `apply_gradients` is to
        reduce.

    Raises:
        ValueError: If gradients are accumulated, which happens later.
    """
    settings: ReductionSettings = optimizer._settings
    method = _changing_method(optimizer)
    if (
        method is None
        or reduction_guard.is_reduced()
        or process_sets.shares_nothing(settings.process_set)
    ):
        return None
    if settings.backward_passes_per_step > 1:
        raise ValueError(
            f"`{method}` of {optimizer._wrapped_class.__name__} would change "
            "the gradients of one rank and one pass: with "
            "`backward_passes_per_step` they are added up, and reduced, after "
            "it. Change them in `apply_gradients`, which gets those of all "
            "ranks and passes, or make `backward_passes_per_step` 1. Received: "
            f"backward_passes_per_step={settings.backward_passes_per_step}"
        )
    signature = inspect.signature(minimize)
    if "tape" not in signature.parameters:
        return None
    given = signature.bind(*args, **kwargs)
    tape = given.arguments.get("tape") or tf.GradientTape()
    step = None
    if settings.whole_batch:
        step = reduction_guard.require_step(optimizer)
    if step is not None:
        tape = _StepTape(tape, step)
    is_comparison = step is not None and step.captured is not None
    if not is_comparison:
        tape = DistributedGradientTape.of_settings(
            tape, settings, local_variables_of(optimizer)
        )
    given.arguments["tape"] = tape
    return Given(given, is_comparison)


def _changing_method(optimizer: Optimizer) -> str | None:
    """Returns the name of a method of the program that sees gradients."""
    for method in _METHODS:
        for each in optimizer._wrapped_class.__mro__:
            if method in vars(each):
                name = each.__module__.partition(".")[0]
                if name not in ("keras", "tf_keras"):
                    return method
                break
    return None


class _StepTape(tf.GradientTape):  # type: ignore[misc]
    """Scales the gradients of this rank to their part of the batch's.

    Args:
        tape: A `tf.GradientTape`.
        step: The step on a part of a batch.
    """

    # `super().__init__` would make a second, empty tape.
    def __init__(self, tape: tf.GradientTape, step: Step) -> None:
        self._local_tape = tape
        self._step = step

    def __getattr__(self, name: str) -> Any:
        if name in ("_local_tape", "_step"):
            raise AttributeError(name)
        return getattr(self._local_tape, name)

    def __enter__(self) -> _StepTape:
        self._local_tape.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._local_tape.__exit__(kind, error, traceback)

    def watch(self, tensor: Tensor) -> None:
        self._local_tape.watch(tensor)

    def stop_recording(self) -> AbstractContextManager[None]:
        found: AbstractContextManager[None] = self._local_tape.stop_recording()
        return found

    def gradient(
        self, target: Structure, sources: Structure, *args: Any, **kwargs: Any
    ) -> Structure:
        gradients = self._local_tape.gradient(target, sources, *args, **kwargs)
        flat_sources = tf.nest.flatten(sources)
        flat = tf.nest.flatten(gradients)
        present = [
            (source, gradient)
            for source, gradient in zip(flat_sources, flat, strict=True)
            if gradient is not None
        ]
        scaled = self._step.scale([gradient for _, gradient in present])
        if self._step.captured is not None:
            self._step.captured.extend(
                (source, gradient)
                for (source, _), gradient in zip(present, scaled, strict=True)
            )
        rest = iter(scaled)
        return tf.nest.pack_sequence_as(
            sources,
            [None if gradient is None else next(rest) for gradient in flat],
        )
