"""The steps and batches of Keras on JAX, which become objects of ours.

Keras makes a function of each step, and an iterator for each pass over data,
and keeps neither. Events are bound to the methods of these objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Model, Structure
from keras_ring.keras.backends import jax_steps
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring

# Attribute of Keras' object for passes over data, while a model is built.
_BUILDS = "_keras_ring_builds"


def install() -> None:
    """Changes the trainer of Keras. Calling it once is enough."""
    hooks.subscribe(
        events.STEP_MADE,
        _making_steps,
        ring=Ring.JOB,
        purpose="the values of a step's variables are known",
    )
    hooks.subscribe(
        events.BATCHES_MADE,
        _making_batches,
        ring=Ring.JOB,
        purpose="the batches of a step are counted",
    )
    hooks.subscribe(
        events.MODEL_BUILT,
        _building,
        ring=Ring.JOB,
        purpose="a batch that only tells shapes is not counted",
    )


def _making_steps(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def make_function(
        self: Model,
        function: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        step = jax_steps.step_of(self, function)
        return make(self, step, *args, **kwargs)

    return make_function


def _making_batches(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def get_iterator(self: Any) -> Iterator[Structure]:
        batches = iter(make(self))
        return batches if hasattr(self, _BUILDS) else jax_steps.Batches(batches)

    return get_iterator


def _building(build: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(build)
    def symbolic_build(
        self: Model, iterator: Any = None, data_batch: Structure = None
    ) -> None:
        if iterator is None:
            build(self, iterator, data_batch)
            return
        setattr(iterator, _BUILDS, True)
        try:
            build(self, iterator, data_batch)
        finally:
            delattr(iterator, _BUILDS)

    return symbolic_build
