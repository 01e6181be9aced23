"""Steps of training in custom loops, on parts of their batches.

It is not known which data a custom loop trains on. But the loop often calls one
function, compiled by `tf.function`, that takes a batch, applies gradients and
returns a loss: a step like that of Keras. So a function that is about to apply
gradients while it is traced is traced once more, on the rows of this rank
(`custom_step_call`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from keras_ring._typing import Structure
from keras_ring.core import notices, topology
from keras_ring.core.notices import say
from keras_ring.errors import AutoError
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import whole_batch
from keras_ring.tensorflow import execution
from keras_ring.unchanged import (
    data_passes,
    metric_registry,
    script,
    update_search,
)
from keras_ring.unchanged.custom_step_call import Call, rows_of
from keras_ring.unchanged.settings import AutoSettings

_PURPOSE = "a step of the program's own trains on all ranks"
_OF_FUNCTION = "_keras_ring_own_step"
_TRAINS_NOTHING = "trains nothing"


def install(settings: AutoSettings) -> None:
    """Changes the class of compiled functions. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.
    """
    metric_registry.install()
    update_search.install()
    hooks.subscribe(
        events.FUNCTION_CALLED,
        functools.partial(_called, settings),
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
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
            known = _TRAINS_NOTHING
            object.__setattr__(self, _OF_FUNCTION, known)
        if known is _TRAINS_NOTHING:
            with update_search.noting() as found:
                try:
                    return call(self, *args, **kwargs)
                except Exception:
                    if not found:
                        raise
        step = OwnStep(self, name, settings)
        # Bypasses its own `__setattr__`, which tracks attributes.
        object.__setattr__(self, _OF_FUNCTION, step)
        return step(*args, **kwargs)

    return call_or_divide


def _name_of(function: Any) -> str:
    return str(getattr(function.python_function, "__name__", "a step"))


def _is_in_loop() -> bool:
    """Returns whether the program calls a function outside of Keras' passes."""
    return (
        backend.is_eager()
        and not update_search.is_running()
        and data_passes.current() is None
        and whole_batch.current() is None
        and not data_passes.is_alone()
        and not execution.functions_run_eagerly()
    )


class OwnStep:
    """A function of the program that trains, on the rows of this rank.

    Args:
        function: A function that `tf.function` has made.
        name: String, its name in the program.
        settings: The `AutoSettings` of the program.
    """

    def __init__(
        self, function: Any, name: str, settings: AutoSettings
    ) -> None:
        self._function = function
        self._settings = settings
        self._name = name
        self._calls: dict[str, Call] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the step with these arguments on all ranks together."""
        arguments = (args, kwargs)
        leaves = backend.flatten(arguments)
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
                "`--batch per-rank` is for what `fit` reads. Leave it out."
            )
        if self._settings.explain:
            say(
                f"step {self._name!r}: each batch is divided by rows; "
                "gradients averaged over "
                f"{topology.size()} ranks"
            )
            notices.say(
                "explained; nothing is trained, and the program ends here"
            )
            sys.exit(0)


def _data_among(leaves: Sequence[Any]) -> tuple[bool, ...]:
    """Returns for each argument whether it is part of the batch.

    It is if it has as many rows as the first argument that has rows.
    """
    rows = None
    found = []
    for leaf in leaves:
        count = rows_of(leaf)
        if rows is None:
            rows = count
        found.append(count is not None and count == rows)
    return tuple(found)


def _structure(arguments: Structure) -> str:
    """Returns a key for the structure of arguments.

    Booleans, strings and `None` are part of the key by their values, because a
    function may do something else for `training=False`. Other arguments are
    represented by their types.
    """

    def shown(leaf: Any) -> str:
        is_choice = isinstance(leaf, bool | str | None)
        return repr(leaf) if is_choice else type(leaf).__name__

    return str(backend.map_structure(shown, arguments))
