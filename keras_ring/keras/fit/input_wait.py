"""Measures how long a program waits for its input pipeline.

Keras and custom loops take batches from an iterator: eagerly, or, with
TensorFlow, in the graph of a training step (`tensorflow/input_wait.py`). In
both cases the time and the samples are counted, and a slice is recorded while
there is a timeline.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from keras_ring.core import native, topology
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring

_PURPOSE = "the time that it takes is measured"


_Share = Callable[[Any], Any]

_share: _Share | None = None


def count_by(share: _Share) -> None:
    """Sets the function that tells how many samples of a batch are counted.

    Args:
        share: Callable that takes the number of rows of a batch, an integer or
            an int64 scalar, and returns how many of them this rank uses.
    """
    global _share
    _share = share


def install() -> None:
    """Changes the iterators that are read. Calling it once is enough."""
    hooks.subscribe(
        events.ITERATOR_READ, _measured, ring=Ring.OBSERVE, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.BATCHES_READ, _measured, ring=Ring.OBSERVE, purpose=_PURPOSE
    )


def _measured(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(take)
    def measure(self: Any) -> Any:
        if not topology.is_initialized():
            return take(self)
        if backend.is_eager():
            return _eagerly(take, self)
        # Only TensorFlow reads batches in a graph.
        from keras_ring.tensorflow import input_wait

        return input_wait.measured(take, self, _share)

    return measure


def _eagerly(take: Callable[[Any], Any], iterator: Any) -> Any:
    core = native.core()
    began = time.monotonic_ns()
    before = core.begin_input_wait(began)
    samples = 0
    try:
        element = take(iterator)
        samples = _num_samples(element)
    finally:
        core.end_input_wait(began, before, time.monotonic_ns(), samples)
    return element


def _num_samples(element: Any) -> int:
    for leaf in backend.flatten(element):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape):
            rows = int(shape[0] or 0)
            return rows if _share is None else int(_share(rows))
    return 0
