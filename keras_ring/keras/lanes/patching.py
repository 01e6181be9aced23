"""Replaces functions of Keras for a while. `wrapping` wraps them for good."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


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
