"""Subscribes features to events, for the Keras of the program.

This is how keras_ring changes Keras and TensorFlow: nothing outside of this
folder wraps or replaces one of their functions.
"""

from __future__ import annotations

from typing import Any

from keras_ring.keras.backends.which import framework, is_keras2
from keras_ring.keras.lanes import optimizer_events, python_events
from keras_ring.keras.lanes.binding import (
    Absent,
    Binding,
    Bound,
    HookPoint,
    Table,
)
from keras_ring.keras.lanes.events import Event
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.lanes.wrapping import wrap

_lane: Table
if is_keras2():
    from keras_ring.keras.lanes.keras2_events import TABLE as _lane
else:
    from keras_ring.keras.lanes.keras3_events import TABLE as _lane

_framework: Table
if framework() == "tensorflow":
    from keras_ring.keras.lanes.tensorflow_events import TABLE as _framework
elif framework() == "jax":
    from keras_ring.keras.lanes.jax_events import TABLE as _framework
else:
    from keras_ring.keras.lanes.torch_events import TABLE as _framework


def _merged(*tables: Table) -> Table:
    """Returns the bindings of several tables, which may share events."""
    merged: dict[Event, Binding] = {}
    for table in tables:
        for event, binding in table.items():
            before = merged.get(event, ())
            if isinstance(before, Absent) or isinstance(binding, Absent):
                merged[event] = binding
            else:
                merged[event] = before + binding
    return merged


_TABLE = _merged(python_events.TABLE, optimizer_events.TABLE, _framework, _lane)


def subscribe(
    event: Event,
    around: Any,
    *,
    ring: Ring,
    purpose: str,
    at: HookPoint | None = None,
) -> None:
    """Puts a wrapper around each function that an event is bound to.

    To do this twice for one purpose changes nothing.

    Args:
        event: An `Event`. The program's Keras, or its framework, may not have
            it.
        around: Callable that takes the function and returns a wrapper, which
            calls it; or what `events` says of this event.
        ring: A `Ring`, the position among other wrappers of the function.
        purpose: String, what it is for. It completes "so that ...".
        at: One of `points(event)`, the only function to wrap. Defaults to
            `None`, for all of them.
    """
    for bound in _bound_to(event):
        adapted = around if bound.adapt is None else bound.adapt(around)
        for point in bound.points():
            if at in (None, point):
                wrap(
                    point.owner,
                    point.name,
                    adapted,
                    ring=ring,
                    purpose=purpose,
                )


def points(event: Event) -> list[HookPoint]:
    """Returns where the functions are that an event is bound to.

    Args:
        event: An `Event`.
    """
    return [point for bound in _bound_to(event) for point in bound.points()]


def _bound_to(event: Event) -> tuple[Bound, ...]:
    binding = _TABLE.get(event, ())
    return () if isinstance(binding, Absent) else binding
