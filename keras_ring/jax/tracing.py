"""Tells whether a function is being traced; computes outside of that.

JAX has no public functions for this, only for single values.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
from jax._src import core


def is_tracing() -> bool:
    """Returns whether a function is being transformed or compiled now."""
    return not core.trace_state_clean()


def outside_of_traces() -> AbstractContextManager[Any]:
    """Computes in the context at once, and not as a part of what is traced."""
    context: AbstractContextManager[Any] = core.eval_context()
    return context


def has_value(array: Any) -> bool:
    """Returns whether an array has a value, and is not being traced."""
    return isinstance(array, jax.Array) and not isinstance(
        array, jax.core.Tracer
    )
