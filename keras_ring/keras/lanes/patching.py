"""Wraps functions of Keras. This is the only module that changes Keras.

Where Keras has no hook, a class or a module of it is changed, only once however
often that is asked for, and `patches()` lists the change. docs/architecture.md
has the list of all changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# An attribute of a patched function: the patches that it has.
_MARK = "_keras_ring_patches"
_patches: list[str] = []


def patch_once(
    owner: Any, name: str, around: Callable[[Any], Any], purpose: str
) -> None:
    """Replaces a function by a wrapper, unless that was done before.

    Args:
        owner: A class or a module.
        name: String, the name of the function in it. It may be inherited.
        around: Callable that takes the function and returns a wrapper, which
            calls it. With `functools.wraps`, the wrapper keeps the attributes
            that earlier patches have set.
        purpose: String, the purpose of the patch. For another purpose the
            function is wrapped again.
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
        functions: Dictionary of the new functions by their names in `owner`.
            Names that it does not have are ignored.
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
    """Returns the changes, as "class or module.function: purpose"."""
    return sorted(set(_patches))


def _name_of(owner: Any) -> str:
    name = getattr(owner, "__qualname__", None)
    return f"{owner.__module__}.{name}" if name else str(owner.__name__)
