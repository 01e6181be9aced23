"""Sets what a module has, and not what it had."""

from types import ModuleType
from typing import Any


def set_known(module: ModuleType, name: str, value: Any) -> None:
    """Sets a name that a module already has.

    One that has moved to another module would be set without any effect.

    Args:
        module: The module.
        name: String, the name.
        value: What it becomes.
    """
    if not hasattr(module, name):
        raise AttributeError(f"{module.__name__} has no {name!r} to set")
    setattr(module, name, value)
