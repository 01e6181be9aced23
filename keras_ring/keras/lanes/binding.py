"""Binds events to functions, by name: these are looked up when it is needed."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes.events import Event
from keras_ring.keras.lanes.wrapping import Around


@dataclasses.dataclass(frozen=True)
class HookPoint:
    """A function by the name under which it is found and wrapped.

    Attributes:
        owner: The class or module.
        name: String, the name of the function in it.
    """

    owner: Any
    name: str


@dataclasses.dataclass(frozen=True)
class Bound:
    """Functions that an event is bound to.

    Attributes:
        what: String, "module:class.function, function", whose functions are
            in one class or module; "keras" stands for the Keras of the
            program. If there is `find`, a description in Markdown instead.
        adapt: Callable that takes what subscribes to the event and returns an
            `Around`. Defaults to `None`: it is one already.
        find: Callable that returns the `HookPoint`s of functions that depend on
            the program. Defaults to `None`.
    """

    what: str
    adapt: Callable[[Any], Around] | None = None
    find: Callable[[], Iterable[HookPoint]] | None = None

    def points(self) -> Iterable[HookPoint]:
        """Returns the hook points of the functions."""
        return _named(self.what) if self.find is None else self.find()


# A tape in a loop subscribes in each step.
@functools.cache
def _named(what: str) -> tuple[HookPoint, ...]:
    module, _, path = what.partition(":")
    first, *others = path.split(", ")
    *classes, first = first.split(".")
    top, dot, rest = module.partition(".")
    if top == "keras":
        top = keras.__name__
    owner: Any = importlib.import_module(f"{top}{dot}{rest}")
    for name in classes:
        owner = getattr(owner, name)
    return tuple(HookPoint(owner, name) for name in (first, *others))


@dataclasses.dataclass(frozen=True)
class Absent:
    """An event that a lane does not have.

    Attributes:
        why: String, the reason, a sentence in Markdown.
    """

    why: str


Binding: TypeAlias = tuple[Bound, ...] | Absent
Table: TypeAlias = Mapping[Event, Binding]
