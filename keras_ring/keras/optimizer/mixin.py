"""Makes the class that an optimizer changes to: its own with a mixin."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, cast

from keras_ring._typing import Optimizer, Variable
from keras_ring.keras.lanes import compat
from keras_ring.keras.lanes.loss_scaling import inner_optimizer
from keras_ring.keras.optimizer import reduction_guard, weighted_losses
from keras_ring.keras.optimizer.local_variables import (
    LocalVariables,
    local_variables_of,
)
from keras_ring.keras.optimizer.reduction import (
    ReductionSettings,
    settings_that_differ,
)

# Attributes with the names under which TensorFlow and Keras 2 export a class.
_EXPORTS = ("_keras_api_names", "_keras_api_names_v1", "_tf_api_names")


Distribute = Callable[[Optimizer, ReductionSettings], None]


class CopyableMixin:
    """Keeps an optimizer distributed when it is copied."""

    _settings: ReductionSettings
    _wrapped_class: type
    _local_variables: LocalVariables
    # The function of the family of optimizers.
    _distribute: Distribute

    @classmethod
    def from_config(cls, *args: Any, **kwargs: Any) -> Optimizer:
        """Makes an optimizer with the reduction settings of this one."""
        plain = cast(Any, cls._wrapped_class).from_config(*args, **kwargs)
        return distributed_again(plain, cls._settings, cls._distribute)

    def register_local_var(self, var: Variable) -> None:
        """Excludes the gradients of a variable from the reduction.

        The variable is trained on this rank's data alone, and its value differs
        between ranks. It must be registered on all ranks before the first step.

        Args:
            var: A variable.
        """
        local_variables_of(self).add(var)


class ReducingMixin(CopyableMixin):
    """Reduces gradients before they are used."""


def distributed_again(
    optimizer: Optimizer,
    settings: ReductionSettings,
    distribute: Distribute,
    local_paths: Iterable[str] = (),
) -> Optimizer:
    """Makes a copy of an optimizer reduce as the original did."""
    optimizer = make_distributed(optimizer, settings, distribute)
    if local_paths:
        inner = inner_optimizer(optimizer)
        object.__setattr__(
            inner, "_local_variables", LocalVariables(local_paths)
        )
    return optimizer


def make_distributed(
    optimizer: Optimizer, settings: ReductionSettings, distribute: Distribute
) -> Optimizer:
    """Changes the class of `optimizer` so that it reduces.

    Args:
        optimizer: An optimizer, distributed already or not.
        settings: A `ReductionSettings`.
        distribute: Function that changes the class of an optimizer.

    Returns:
        `optimizer`.

    Raises:
        ValueError: If it is distributed already, with other settings.
    """
    present = distributed_settings(optimizer)
    if present is not None and present != settings:
        raise ValueError(
            "This optimizer reduces its gradients already, with "
            f"{settings_that_differ(present, settings)}. "
            f"Received: {settings_that_differ(settings, present)}. Make it "
            "distributed once, with all settings."
        )
    if present is not None and isinstance(optimizer, CopyableMixin):
        return optimizer
    weighted_losses.install(distributed_settings)
    reduction_guard.install()
    distribute(optimizer, settings)
    return optimizer


def distributed_settings(optimizer: Optimizer) -> ReductionSettings | None:
    """Returns the settings by which `optimizer` reduces, or `None`.

    Args:
        optimizer: An optimizer. If it is a `LossScaleOptimizer`, which Keras
            adds, its inner optimizer counts.
    """
    while optimizer is not None:
        if isinstance(optimizer, ReducingMixin):
            return optimizer._settings
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return None


def change_class(
    optimizer: Optimizer,
    mixin: type,
    settings: ReductionSettings,
    keras: ModuleType | None,
    beneath: type | None = None,
) -> None:
    """Changes an optimizer's class to a subclass with a mixin.

    Args:
        optimizer: The optimizer.
        mixin: A subclass of `CopyableMixin`.
        settings: A `ReductionSettings`.
        keras: The Keras module of the class, or `None`.
        beneath: A subclass of the base class of the family, or `None`. In the
            method resolution order it comes after the optimizer's class and
            before that base class.
    """
    wrapped_class: type = type(optimizer)
    if issubclass(wrapped_class, CopyableMixin):
        wrapped_class = wrapped_class._wrapped_class
    distributed = _distributed_class(
        mixin, wrapped_class, beneath, settings, keras
    )
    # Bypasses the optimizer's own `__setattr__`, which tracks attributes.
    object.__setattr__(optimizer, "__class__", distributed)
    if issubclass(mixin, ReducingMixin) and not hasattr(
        optimizer, "_local_variables"
    ):
        object.__setattr__(optimizer, "_local_variables", LocalVariables())


@functools.cache
def _distributed_class(
    mixin: type,
    wrapped_class: type,
    beneath: type | None,
    settings: ReductionSettings,
    keras: ModuleType | None,
) -> type:
    """Makes the class, which saved files name like the wrapped one.

    Keras writes the module and the name of an optimizer's class, and the name
    under which it is registered, if any. A loader finds the wrapped class by
    them.
    """
    name = wrapped_class.__name__
    module = wrapped_class.__module__
    if keras and getattr(keras.optimizers, name, None) is wrapped_class:
        module = "keras.optimizers"
    distributed_class = type(
        name,
        (mixin, wrapped_class, *([beneath] if beneath else [])),
        {
            "__module__": module,
            "__qualname__": wrapped_class.__qualname__,
            "__doc__": wrapped_class.__doc__,
            "_wrapped_class": wrapped_class,
            "_settings": settings,
            **{
                export: vars(wrapped_class)[export]
                for export in _EXPORTS
                if export in vars(wrapped_class)
            },
        },
    )
    if keras:
        _register_alike(distributed_class, wrapped_class, keras)
        compat.export_alike(distributed_class, wrapped_class)
    return distributed_class


def _register_alike(
    distributed_class: type, wrapped_class: type, keras: ModuleType
) -> None:
    package, separator, registered = keras.saving.get_registered_name(
        wrapped_class
    ).rpartition(">")
    if separator:
        # Loading uses the later registration, so plain Keras still gets the
        # plain class.
        for each in (distributed_class, wrapped_class):
            keras.saving.register_keras_serializable(package, registered)(each)
