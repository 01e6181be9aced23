"""Measures each `fit`, and shows one progress bar for all ranks.

`observed_fit` counts for the whole program; a `Watch` measures one `fit`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Callback, Model
from keras_ring.core import native
from keras_ring.core.process_sets import is_alone
from keras_ring.keras import scope
from keras_ring.keras.fit import input_wait, observed_fit
from keras_ring.keras.fit.watch import Watch
from keras_ring.keras.lanes import events, hooks, keras
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import local_updates
from keras_ring.keras.optimizer.trained_by import trained_by

_PURPOSE = "it is measured, and shown for all ranks"

_make_bar: Callable[[], Callback] | None = None


def install(make_bar: Callable[[], Callback] | None = None) -> None:
    """Makes each `fit` be watched. Calling it once is enough.

    Args:
        make_bar: Callable that returns the progress bar of a `fit` of several
            ranks, a subclass of `ProgbarLogger`. Defaults to `None`, for that
            of Keras or of an earlier call.
    """
    global _make_bar
    _make_bar = make_bar or _make_bar
    observed_fit.install()
    input_wait.install()
    hooks.subscribe(
        events.FIT_RUNS, _watched, ring=Ring.OBSERVE, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.CALLBACKS_ADDED,
        _with_watch,
        ring=Ring.OBSERVE,
        purpose=_PURPOSE,
    )


def current() -> Watch | None:
    """Returns the `Watch` of the `fit` that the caller runs in, or `None`."""
    watch: Watch | None = scope.current().watch
    return watch


def _watched(fit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fit)
    def watched(self: Model, *args: Any, **kwargs: Any) -> Any:
        # A `fit` of a callback is part of the one around it.
        if (
            not native.core().is_initialized()
            or scope.current().watch is not None
        ):
            return fit(self, *args, **kwargs)
        watch = Watch(self, args[0] if args else kwargs.get("x"))
        with scope.inside(watch=watch):
            try:
                return fit(self, *args, **kwargs)
            finally:
                watch.close()

    return watched


def _with_watch(add: Callable[..., None]) -> Callable[..., None]:
    parameters = inspect.signature(add)

    @functools.wraps(add)
    def add_with_watch(self: Any, *args: Any, **kwargs: Any) -> None:
        watch = scope.current().watch
        if watch is None or watch.callbacks is not None:
            add(self, *args, **kwargs)
            return
        given = parameters.bind(self, *args, **kwargs)
        given.apply_defaults()
        if (
            given.arguments["add_progbar"]
            and _make_bar is not None
            and _is_of_several(watch.model)
            and not any(_is_bar(each) for each in self.callbacks)
        ):
            self.callbacks.append(_make_bar())
        add(*given.args, **given.kwargs)
        watch.callbacks = self

    return add_with_watch


def _is_bar(callback: Callback) -> bool:
    return isinstance(callback, keras.callbacks.ProgbarLogger)


def _is_of_several(model: Model) -> bool:
    return not (is_alone(trained_by(model)) or local_updates.are_allowed())
