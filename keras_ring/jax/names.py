"""The names of collectives that a program does not name."""

from __future__ import annotations

import collections
import os
import sys
import sysconfig
from typing import Any

import jax
from jax.extend import core as extension

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_KEPT = 256  # traces that may be under way at a time


def of_site(kind: str, arrays: list[Any]) -> str:
    """Returns the name of a collective: the line of the program that makes it.

    A collective that the line makes again while one function is traced gets a
    number, because both may run at once.

    Args:
        kind: String, such as `"allreduce"`.
        arrays: List of arrays or tracers, the operands.

    Returns:
        String, such as `"allreduce@train.py:42"`.
    """
    name = f"{kind}@{_line()}"
    if not any(isinstance(each, jax.core.Tracer) for each in arrays):
        return name
    count = _counter()[name]
    _counter()[name] += 1
    return f"{name}#{count}" if count else name


_counters: collections.deque[tuple[Any, collections.Counter[str]]] = (
    collections.deque(maxlen=_KEPT)
)


def _counter() -> collections.Counter[str]:
    """Returns the counts of names in the present trace."""
    state = extension.get_opaque_trace_state()
    found = next((each for each in _counters if each[0] == state), None)
    if found is None:
        found = (state, collections.Counter())
        _counters.append(found)
    return found[1]


def _line() -> str:
    frame = sys._getframe()
    outermost = frame
    while frame is not None:
        if not _is_of_others(frame.f_code.co_filename):
            break
        outermost = frame
        frame = frame.f_back  # type: ignore[assignment]
    found = frame or outermost
    return f"{os.path.basename(found.f_code.co_filename)}:{found.f_lineno}"


def _is_of_others(path: str) -> bool:
    """Returns whether a file is of keras_ring, or of an installed package."""
    return path.startswith((_PACKAGE, "<", *_INSTALLED))


_INSTALLED = tuple(
    {
        sysconfig.get_path(each) + os.sep
        for each in ("purelib", "platlib", "stdlib")
    }
)
