"""Replaces functions of Keras: for good, or for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from keras_ring.keras.lanes import wrapping
from keras_ring.keras.lanes.rings import Ring


def patch_once(
    owner: Any,
    name: str,
    around: wrapping.Around,
    purpose: str,
    *,
    ring: Ring = Ring.JOB,
) -> None:
    """Replaces a function by a wrapper, unless that was done before.

    Args:
        owner: A class or a module.
        name: String, the name of the function in it. It may be inherited.
        around: Callable that takes the function and returns a wrapper, which
            calls it.
        purpose: String, the purpose of the patch. For another purpose the
            function is wrapped again.
        ring: A `Ring`, the place among other wrappers. Defaults to `Ring.JOB`.
    """
    wrapping.wrap(owner, name, around, ring=ring, purpose=purpose)


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
