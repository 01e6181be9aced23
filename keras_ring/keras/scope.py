"""The part of a program that runs now, in one context variable.

Code that Keras or TensorFlow calls, such as a metric's update or an assignment,
finds here in which `fit`, pass over data, step or comparison it runs. Each
field is set by the one module that is named at it.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Scope:
    """The state of the program in this thread, at this moment.

    Attributes:
        watch: The `Watch` of `fit` (`fit.watching`).
        step: The `Step` of a model that JAX runs (`backends.jax_steps`).
        is_writing_alone: Boolean, whether rank 0 alone runs a callback
            (`fit.one_writer`).
        is_reduced: Boolean, whether gradients were reduced already
            (`optimizer.reduction_guard`).
        allows_local_updates: Boolean, whether updates of one rank alone are
            allowed (`optimizer.local_updates`).
        accumulated: The accumulated gradients of an update, with their names
            (`optimizer.keras3_optimizer`).
        minimizing: The call of `minimize` of an optimizer of Keras 2
            (`optimizer.keras2_optimizer`).
        losses: The `Losses` that are weighted (`optimizer.weighted_losses`).
        part: The `Step` on a part of a batch (`optimizer.whole_batch`).
        masks: The masks of the losses of Keras 2 (`lanes.keras2`).
        rank_of_numbers: Integer, the rank whose deterministic numbers are
            drawn (`lanes.deterministic_random`).
        data_pass: The `Pass` over data (`unchanged.data_passes`).
        is_alone: Boolean, whether a rank does something for itself, such as
            the evaluation of a callback (`unchanged.data_passes`).
        is_once: Boolean, whether rank 0 does something for all ranks
            (`unchanged.once`).
        goes_on: Boolean, whether a training was begun before, by other ranks
            (`elastic.running`, `elastic.joined_fit`).
        catches_up: Boolean, whether this rank does what the others have done
            before it came in (`elastic.joined_fit`).
        joined_fit: The `JoinedFit` that others may come into
            (`elastic.joined_fit`).
        is_checkpoint_silent: Boolean, whether TensorFlow writes for rank 0
            alone (`unchanged.tensorflow_files`).
        is_of_all_rows: Boolean, whether a function is computed of the rows of
            all ranks (`unchanged.whole_functions`).
        watcher: The `Watcher` of assignments (`unchanged.assignments`).
        noted_optimizers: The list of the optimizers that a function uses
            (`unchanged.update_search`).
        traced_function: String, the name of the function that is traced
            (`unchanged.update_search`).
    """

    watch: Any = None
    step: Any = None
    is_writing_alone: bool = False
    is_reduced: bool = False
    allows_local_updates: bool = False
    accumulated: Any = None
    minimizing: Any = None
    losses: Any = None
    part: Any = None
    masks: Any = None
    rank_of_numbers: int = 0
    data_pass: Any = None
    is_alone: bool = False
    is_once: bool = False
    goes_on: bool = False
    catches_up: bool = False
    joined_fit: Any = None
    is_checkpoint_silent: bool = False
    is_of_all_rows: bool = False
    watcher: Any = None
    noted_optimizers: Any = None
    traced_function: str | None = None


_OUTSIDE = Scope()
_current = contextvars.ContextVar("keras_ring_scope", default=_OUTSIDE)


def current() -> Scope:
    """Returns what runs now, in this thread."""
    return _current.get()


@contextlib.contextmanager
def inside(**changes: Any) -> Iterator[None]:
    """Changes fields of the scope for the code in the `with` statement.

    Args:
        **changes: Fields of `Scope`, with their values. At the end they have
            their former values again; other fields are left as they are, in
            case such statements overlap.
    """
    before = _current.get()
    _current.set(dataclasses.replace(before, **changes))
    try:
        yield
    finally:
        former = {name: getattr(before, name) for name in changes}
        _current.set(dataclasses.replace(_current.get(), **former))
