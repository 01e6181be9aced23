"""The metrics of Keras that a program has, including those of no model."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Variable
from keras_ring.keras.lanes import compat, events, hooks
from keras_ring.keras.lanes.rings import Ring

_metrics: weakref.WeakSet[Any] = weakref.WeakSet()


def install() -> None:
    """Records the metrics that are made from now on. Once is enough."""
    hooks.subscribe(
        events.METRIC_MADE,
        _noted,
        ring=Ring.UNCHANGED,
        purpose="metrics outside of models count the whole batch",
    )


def _noted(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _metrics.add(self)

    return note


def variables() -> Iterator[Variable]:
    """Yields the variables of all metrics."""
    for metric in list(_metrics):
        yield from metric.variables


def sums() -> Iterator[Variable]:
    """Yields the variables of all metrics that are sums."""
    for variable in variables():
        if compat.aggregation(variable) == "sum":
            yield variable
