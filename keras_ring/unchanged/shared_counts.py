"""Counts of metrics that are the same on all ranks before these go on counting.

After an evaluation between steps, the metrics of all ranks are in the same
state, that of all rows. Keras continues counting from it until it resets the
metrics. So when the counts of ranks are added up, what they share is that of
one rank alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Model, Variable
from keras_ring.core import topology
from keras_ring.keras.lanes import compat, events, hooks
from keras_ring.keras.lanes.rings import Ring

_OF_ALL = "_keras_ring_state_of_all"


def install() -> None:
    """Forgets the counts of metrics that are reset. Once is enough."""
    hooks.subscribe(
        events.METRICS_RESET,
        _reset,
        ring=Ring.UNCHANGED,
        purpose="the results are those of one process",
    )


def note_state_of_all(model: Model) -> None:
    """Records that the metrics of a model are in the same state on all ranks.

    Its metrics may be in other models, too.

    Args:
        model: A `keras.Model`.
    """
    for variable in compat.metrics_variables(model):
        note_of_all(variable)


def note_of_all(variable: Variable) -> None:
    """Records that a variable of a metric is the same on all ranks.

    Args:
        variable: A variable in which ranks count.
    """
    _note(variable, np.array(compat.as_numpy(variable)))


def leave_to_one(variables: list[Variable]) -> None:
    """Subtracts shared counts from the sums of all ranks but rank 0.

    Args:
        variables: List of variables of metrics, whose values are going to be
            combined over ranks.
    """
    if topology.rank() == 0:
        return
    for variable in variables:
        value = getattr(variable, _OF_ALL, None)
        if value is not None and compat.aggregation(variable) == "sum":
            compat.assign(variable, compat.as_numpy(variable) - value)


def _note(variable: Variable, value: npt.NDArray[Any] | None) -> None:
    object.__setattr__(variable, _OF_ALL, value)


def _reset(reset: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(reset)
    def reset_metrics(self: Model) -> None:
        reset(self)
        # Metrics that Keras leaves as they are until they are built are not
        # among these.
        for variable in compat.metrics_variables(self):
            _note(variable, None)

    return reset_metrics
