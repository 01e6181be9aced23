"""Puts functions around those of Keras: the one place that changes Keras.

Where Keras has no hook, a class or a module of it is changed: once, however
often it is asked for, and in a way that `patches()` tells of.
docs/architecture.md has the list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# What a function was patched for, beside it.
_MARK = "_keras_ring_patches"
_patches: list[str] = []


def patch_once(
    owner: Any, name: str, around: Callable[[Any], Any], purpose: str
) -> None:
    """Replaces a function by one around it, unless that was done before.

    Args:
        owner: A class or a module.
        name: String, the name of the function in it. It may be inherited.
        around: Takes the function and returns what stands in its place, which
            calls it. `functools.wraps` keeps what others have noted beside it.
        purpose: String, what for. For another purpose it is replaced again.
    """
    present = getattr(owner, name)
    patch = f"{_name_of(owner)}.{name}: {purpose}"
    present_patches = getattr(present, _MARK, ())
    if patch in present_patches:
        return
    replaced = around(present)
    setattr(replaced, _MARK, (*present_patches, patch))
    setattr(owner, name, replaced)
    _patches.append(patch)


@contextlib.contextmanager
def replaced(owner: Any, functions: Mapping[str, Any]) -> Iterator[None]:
    """Replaces functions of a class or module while the block runs.

    Args:
        owner: A class or a module.
        functions: The functions by their names in it. Names that it has not
            are passed over.
    """
    present = {
        name: getattr(owner, name) for name in functions if hasattr(owner, name)
    }
    try:
        for name in present:
            setattr(owner, name, functions[name])
        yield
    finally:
        for name, function in present.items():
            setattr(owner, name, function)


def patches() -> list[str]:
    """Returns what was changed, as "class or module.function: purpose"."""
    return sorted(set(_patches))


def _name_of(owner: Any) -> str:
    name = getattr(owner, "__qualname__", None)
    return f"{owner.__module__}.{name}" if name else str(owner.__name__)
