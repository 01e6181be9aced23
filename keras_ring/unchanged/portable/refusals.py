"""Errors for what `--auto` trains on TensorFlow alone, with advice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Model, Optimizer, Source
from keras_ring.errors import AutoError, KerasRingError
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import reduction_guard
from keras_ring.unchanged import data_passes, ending, script, stateful_layers
from keras_ring.unchanged.settings import AutoSettings

_PURPOSE = "what cannot be done exactly on all ranks is an error"


def install() -> None:
    """Changes the functions that are refused. Calling it once is enough."""
    reduction_guard.explain_by(_of_own_loop)
    hooks.subscribe(
        events.OPTIMIZER_MADE,
        _refuses_optimizer,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )


def check_settings(settings: AutoSettings) -> None:
    """Raises an error for settings that only TensorFlow has.

    Args:
        settings: The `AutoSettings` of the program.
    """
    if settings.per_rank:
        raise AutoError(
            "`--auto` with batches of each rank's own (`--batch per-rank`) "
            f"trains on TensorFlow alone, and Keras runs on "
            f"{backend.name()!r} here: leave the option out."
        )


def check_model(model: Model) -> None:
    """Raises an error for a model that is not trained on parts of batches.

    Args:
        model: A `keras.Model` in `fit`, which is compiled.
    """
    if backend.name() == "torch" and model.jit_compile:
        raise AutoError(
            f"{script.line()} compiles model {model.name!r} with "
            "`jit_compile=True`, whose step PyTorch compiles as a whole; "
            "`--auto` divides the batch in it. Leave the argument out."
        )
    stateful_layers.refuse(model)


def _refuses_optimizer(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise AutoError(
            f"{script.line()} makes a `torch.optim.{type(self).__name__}`, "
            "whose updates are those of a loop of the program's own. On "
            "'torch', `--auto` trains models of Keras by `fit` and "
            "`train_on_batch` alone. For a loop, see "
            "`keras_ring.torch.DistributedOptimizer`."
        )

    return refuse


def _of_own_loop(optimizer: Optimizer, variable: Source) -> KerasRingError:
    ending.note_training()
    if data_passes.is_alone():
        return reduction_guard.local_update_error(optimizer, variable)
    what = "" if variable is None else f" {backend.variable_path(variable)!r}"
    error: KerasRingError = AutoError(
        f"{script.line()} updates{what} by optimizer "
        f"{reduction_guard.name_of(optimizer)!r} in a loop of the program's "
        f"own. On {backend.name()!r}, `--auto` trains by `fit` and "
        "`train_on_batch` alone. In a loop, give each rank its part of the "
        "data (`kr.data.shard`), make the optimizer one of all ranks "
        "(`kr.DistributedOptimizer`), and begin with "
        "`kr.broadcast_model(model)`."
    )
    return error
