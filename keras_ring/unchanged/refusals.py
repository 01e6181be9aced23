"""Errors for what `--auto` cannot do exactly, with advice what to write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Optimizer, Source
from keras_ring.errors import AutoError, KerasRingError
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import reduction_guard
from keras_ring.tensorflow.names import variable_path
from keras_ring.unchanged import data_passes, ending, script, update_search

_PURPOSE = "what cannot be done exactly on all ranks is an error"


def install() -> None:
    """Changes the functions that are refused. Calling it once is enough."""
    hooks.subscribe(
        events.STRATEGY_MADE,
        _refuses_strategy,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.INPUT_ASKED,
        _refuses_input,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.GRAPHS_ASKED,
        _refuses_graphs,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    reduction_guard.explain_by(_of_own_loop)


def _refuses_strategy(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise AutoError(
            f"{script.line()} makes a `tf.distribute."
            f"{type(self).__name__}`, which trains on several devices by "
            "itself. Remove it, with its `scope()`: the ranks of keras_ring "
            "take its place."
        )

    return refuse


def _refuses_input(ask: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(ask)
    def refuse(*args: Any) -> str:
        raise AutoError(
            f"{script.line()} asks for `input()`, and no rank has a terminal. "
            "Take it from the command line or a file."
        )

    return refuse


def _refuses_graphs(disable: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(disable)
    def refuse() -> None:
        raise AutoError(
            f"{script.line()} calls `tf.compat.v1.{disable.__name__}`, and "
            "`--auto` needs eager execution. Leave it out, or train by the "
            "explicit lines, which do without (docs/keras_guide.md, Keras 2)."
        )

    return refuse


def _of_own_loop(optimizer: Optimizer, variable: Source) -> KerasRingError:
    update_search.note(optimizer)
    ending.note_training()
    if data_passes.is_alone():
        return reduction_guard.local_update_error(optimizer, variable)
    what = "" if variable is None else f" {variable_path(variable)!r}"
    error: KerasRingError = AutoError(
        f"{script.line()} updates{what} by optimizer "
        f"{reduction_guard.name_of(optimizer)!r} in a loop of the program's "
        "own, and `--auto` does not know which data the gradients are of. "
        "Put the step into a function that takes the batch, with "
        "`@tf.function` before it; or train by `fit` (a `train_step` of one's "
        "own may be in the model); or write:\n"
        "    import keras_ring as kr\n"
        "    dataset = kr.data.shard(dataset)  # before it is batched\n"
        "    kr.broadcast_model(model, optimizers=[optimizer])  # once\n"
        "    tape = kr.DistributedGradientTape(tape)  # before tape.gradient"
    )
    return error
