"""Puts wrappers around functions of Keras and TensorFlow.

Where Keras has no hook, a class or a module of it is changed. `patches()` lists
the changes, and docs/architecture.md has the list of all.

A function that is changed is replaced once, by a *dispatcher* that calls the
wrappers of now. So a wrapper that comes later still gets its position among the
others, even if the program, or a library, has put one of its own around the
dispatcher meanwhile, or has kept the dispatcher under another name.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from keras_ring.keras.lanes.rings import Ring

# Takes a function and returns a wrapper, which calls it.
Around: TypeAlias = Callable[[Any], Any]

# Attributes of a function that is changed: its `_Hook`, and its patches.
_HOOK = "_keras_ring_hook"
_MARK = "_keras_ring_patches"
_patches: list[str] = []


def wrap(
    owner: Any, name: str, around: Around, *, ring: Ring, purpose: str
) -> None:
    """Puts a wrapper around a function, unless that was done before.

    Args:
        owner: A class or a module.
        name: String, the name of the function in it. It may be inherited.
        around: Callable that takes the function and returns a wrapper, which
            calls it. It is called again whenever the function gets another
            wrapper. With `functools.wraps`, the wrapper keeps the attributes
            of the function.
        ring: A `Ring`, the position among other wrappers.
        purpose: String, the purpose of the wrapper. For another purpose the
            function is wrapped again.
    """
    present = getattr(owner, name)
    hook: _Hook | None = getattr(present, _HOOK, None)
    # An inherited function has the hook of the class that it is from.
    is_own = hook is not None and hook.owner is owner and hook.name == name
    if hook is None or not is_own:
        hook = _Hook(owner, name, present)
    patch = f"{_name_of(owner)}.{name}: {purpose}"
    if hook.has(patch):
        return
    function = hook.add(_Wrapper(around, ring, patch))
    if not is_own or not callable(function):
        setattr(owner, name, function)
    _patches.append(patch)


def patches() -> list[str]:
    """Returns the changes, as "class or module.function: purpose"."""
    return sorted(set(_patches))


def order_of(function: Any) -> list[tuple[Ring, str]]:
    """Returns the rings and the purposes of a function's wrappers.

    Args:
        function: A function, as it is found in its class or module.

    Returns:
        A list, the outermost wrapper first.
    """
    hook: _Hook | None = getattr(function, _HOOK, None)
    inwards = [] if hook is None else hook.wrappers[::-1]
    return [(each.ring, each.patch.partition(": ")[2]) for each in inwards]


@dataclasses.dataclass(frozen=True)
class _Wrapper:
    around: Around
    ring: Ring
    patch: str


class _Hook:
    """A function that is changed, and its wrappers.

    Args:
        owner: The class or module that has it.
        name: String, its name there.
        original: The function as it was found.

    Attributes:
        wrappers: List of the `_Wrapper`s, the innermost first.
    """

    def __init__(self, owner: Any, name: str, original: Any) -> None:
        self.owner = owner
        self.name = name
        self._original = original
        self._wrapped = original
        self.wrappers: list[_Wrapper] = []

        def dispatch(*args: Any, **kwargs: Any) -> Any:
            return self._wrapped(*args, **kwargs)

        self._dispatch = dispatch

    def has(self, patch: str) -> bool:
        """Returns whether the function has a wrapper already."""
        return any(each.patch == patch for each in self.wrappers)

    def add(self, wrapper: _Wrapper) -> Any:
        """Adds a wrapper at its ring, and returns the function for the owner.

        A module, which is replaced as a whole and not called, is another one
        each time.
        """
        # Stable: of one ring, the first is inside.
        wrappers = sorted(
            [*self.wrappers, wrapper], key=lambda each: each.ring, reverse=True
        )
        wrapped = self._original
        for each in wrappers:
            wrapped = each.around(wrapped)
        self.wrappers = wrappers
        self._wrapped = function = wrapped
        if callable(wrapped):
            # Its module and attributes also decide whether AutoGraph converts
            # it, so they are those of the outermost wrapper.
            function = functools.update_wrapper(self._dispatch, wrapped)
        inherited = getattr(self._original, _MARK, ())
        own = (each.patch for each in wrappers)
        setattr(function, _MARK, (*inherited, *own))
        setattr(function, _HOOK, self)
        return function


def _name_of(owner: Any) -> str:
    name = getattr(owner, "__qualname__", None)
    return f"{owner.__module__}.{name}" if name else str(owner.__name__)
