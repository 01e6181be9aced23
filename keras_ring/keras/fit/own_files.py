"""Makes each `fit` check that no two ranks cache their data in one file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Model
from keras_ring.keras.agreement import cache_files
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import local_updates
from keras_ring.keras.optimizer.mixin import distributed_settings

_PURPOSE = "no two ranks cache their data in one file"


def install() -> None:
    """Changes the class of Keras. Calling it once is enough."""
    hooks.subscribe(
        events.FIT_RUNS, _looked_at, ring=Ring.JOB, purpose=_PURPOSE
    )


def _looked_at(fit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fit)
    def fit_looked_at(self: Model, *args: Any, **kwargs: Any) -> Any:
        settings = distributed_settings(getattr(self, "optimizer", None))
        if settings is not None and not local_updates.are_allowed():
            # All arguments, for the validation data, too.
            cache_files.require_own_files(
                [*args, *kwargs.values()], "fit/files", settings.process_set
            )
        return fit(self, *args, **kwargs)

    return fit_looked_at
