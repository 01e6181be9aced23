"""Steps of training in a loop of the program's own, on parts of its batches.

Of a loop nobody knows which data it trains on. But what a program calls in it
is often one function, compiled by `tf.function`, that takes a batch, applies
gradients and returns a loss: a step, as Keras' own is. So a function that is
about to apply gradients while it is traced is traced once more, on the rows of
this rank (`own_step_call`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_ring._auto import (
    living_metrics,
    passes,
    said,
    script,
    update_search,
)
from keras_ring._auto.own_step_call import Call, rows_of
from keras_ring._auto.said import say
from keras_ring._auto.settings import AutoSettings
from keras_ring._keras.patching import patch_once
from keras_ring._runtime import topology
from keras_ring._training import whole_batch
from keras_ring._typing import Structure
from keras_ring.errors import AutoError

_PURPOSE = "a step of the program's own trains on all ranks"
_OF_FUNCTION = "_keras_ring_own_step"
_TRAINS_NOT = "trains not"


def install(settings: AutoSettings) -> None:
    """Changes what `tf.function` makes. Once is enough.

    Args:
        settings: What was asked for.
    """
    living_metrics.install()
    update_search.install()
    compiled = type(tf.function(lambda: None))
    patch_once(
        compiled,
        "__call__",
        functools.partial(_called, settings),
        _PURPOSE,
    )


def _called(
    settings: AutoSettings, call: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(call)
    def call_or_divide(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_in_loop() or update_search.is_ours(self):
            return call(self, *args, **kwargs)
        known = vars(self).get(_OF_FUNCTION)
        if isinstance(known, OwnStep):
            return known(*args, **kwargs)
        name = _name_of(self)
        if known is None and not update_search.trains(
            self, name, *args, **kwargs
        ):
            known = _TRAINS_NOT
            object.__setattr__(self, _OF_FUNCTION, known)
        if known is _TRAINS_NOT:
            with update_search.noting() as found:
                try:
                    return call(self, *args, **kwargs)
                except Exception:
                    if not found:
                        raise
        step = OwnStep(self, name, settings)
        # Past its own `__setattr__`, which tracks what is set.
        object.__setattr__(self, _OF_FUNCTION, step)
        return step(*args, **kwargs)

    return call_or_divide


def _name_of(function: Any) -> str:
    return str(getattr(function.python_function, "__name__", "a step"))


def _is_in_loop() -> bool:
    """Whether the program itself calls a function, and not Keras for it."""
    return (
        tf.executing_eagerly()
        and not update_search.is_running()
        and passes.current() is None
        and whole_batch.current() is None
        and not passes.is_alone()
        and not tf.config.functions_run_eagerly()
    )


class OwnStep:
    """One function that trains, on the rows of this rank.

    Args:
        function: What `tf.function` has made.
        name: String, what the program calls it.
        settings: What was asked for.
    """

    def __init__(
        self, function: Any, name: str, settings: AutoSettings
    ) -> None:
        self._function = function
        self._settings = settings
        self._name = name
        self._calls: dict[str, Call] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = (args, kwargs)
        leaves = tf.nest.flatten(arguments)
        key = _structure(arguments)
        if key not in self._calls:
            is_data = _data_among(leaves)
            if not any(is_data):
                raise AutoError(
                    f"{script.line()} trains by {self._name!r}, which is given "
                    "no batch: what it is called with has no rows, and "
                    "`--auto` divides no other data. Give it the batch as an "
                    "argument; or train by `fit`, or by explicit lines: "
                    "`kr.data.shard`, `kr.DistributedGradientTape`."
                )
            self._refuse_settings()
            self._calls[key] = Call(
                self._function, self._name, arguments, is_data
            )
        return self._calls[key](leaves)

    def _refuse_settings(self) -> None:
        if self._settings.per_rank:
            raise AutoError(
                f"{script.line()} trains by {self._name!r} in a loop of the "
                "program's own, whose batches are what it makes them: "
                "`--batch per-rank` is for what `fit` reads. Leave it away."
            )
        if self._settings.explain:
            say(
                f"step {self._name!r}: each batch is divided by rows; "
                "gradients averaged over "
                f"{topology.size()} ranks"
            )
            said.say("explained; nothing is trained, and the program ends here")
            sys.exit(0)


def _data_among(leaves: Sequence[Any]) -> tuple[bool, ...]:
    """Tells which arguments are the batch: of as many rows as the first."""
    rows = None
    found = []
    for leaf in leaves:
        count = rows_of(leaf)
        if rows is None:
            rows = count
        found.append(count is not None and count == rows)
    return tuple(found)


def _structure(arguments: Structure) -> str:
    """Returns what tells calls of other arguments from each other.

    A function may do something else for `training=False`; a number tells
    nothing of that.
    """

    def shown(leaf: Any) -> str:
        is_choice = isinstance(leaf, bool | str | None)
        return repr(leaf) if is_choice else type(leaf).__name__

    return str(tf.nest.map_structure(shown, arguments))
