"""`train_on_batch` of a program for one process, on all ranks.

All ranks call it with the same batch, and each trains on its part of the rows,
as in `fit`. The results are those of the whole batch.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Model, Structure
from keras_ring.core.notices import say
from keras_ring.keras.lanes import compat, events, hooks, keras3_models
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.model.model_broadcast import broadcast_model
from keras_ring.keras.optimizer.local_updates import allow_local_updates
from keras_ring.unchanged import (
    comparisons,
    data_passes,
    ending,
    script,
    shared_counts,
)
from keras_ring.unchanged.data_passes import Pass
from keras_ring.unchanged.portable import (
    random_draws,
    results,
    same_batches,
    training,
)
from keras_ring.unchanged.settings import AutoSettings

_PURPOSE = "single batches are divided between ranks"
_TRAINED = "_keras_ring_single_batches"


class _Trained:
    """The number and the digests of the single batches of one model."""

    def __init__(self) -> None:
        self.count = 0
        self.digests = same_batches.Digests()


def install(settings: AutoSettings) -> None:
    """Changes the models of Keras. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.
    """
    hooks.subscribe(
        events.BATCH_TRAINED,
        functools.partial(_on_all_ranks, settings),
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )


def _on_all_ranks(
    settings: AutoSettings, train: Callable[..., Any]
) -> Callable[..., Any]:
    parameters = inspect.signature(train)

    @functools.wraps(train)
    def train_on_part(self: Model, *args: Any, **kwargs: Any) -> Any:
        ending.note_training()
        given = parameters.bind(self, *args, **kwargs)
        given.apply_defaults()
        wanted = given.arguments
        batch = wanted["x"], wanted["y"], wanted["sample_weight"]
        if data_passes.current() is not None or not data_passes.is_of_all_ranks(
            self, batch
        ):
            return train(self, *args, **kwargs)
        training.prepare(self)
        location = script.location()
        say(
            f"train_on_batch of model {self.name!r}{location}: divided by rows",
            location=location,
        )
        if settings.explain:
            say("explained; nothing is trained, and the program ends here")
            sys.exit(0)
        trained = _trained_of(self)
        trained.count += 1
        trained.digests.note(batch)
        this = Pass(self, is_training=True)
        this.is_split = True
        if trained.count == 1:
            _build_and_share(self, batch)
        with data_passes.running(this):
            if comparisons.is_due(trained.count):
                self.make_train_function()
                training.arrange_check(self)
            train(self, *args, **kwargs)
            found = results.combined(self, "auto/batch")
        shared_counts.note_state_of_all(self)
        if comparisons.is_due(trained.count):
            comparisons.require_same_weights(self, trained.count)
        if wanted["return_dict"]:
            return found
        return keras3_models.in_order(self, found)

    return train_on_part


def _trained_of(model: Model) -> _Trained:
    found: _Trained | None = vars(model).get(_TRAINED)
    if found is None:
        found = _Trained()
        # Bypasses the model's own `__setattr__`, which tracks attributes.
        object.__setattr__(model, _TRAINED, found)
    return found


def _build_and_share(model: Model, batch: Structure) -> None:
    """Builds a model, and gives all ranks the state of rank 0."""
    with data_passes.running(None), allow_local_updates():
        compat.build_from_batch(model, batch)
    broadcast_model(model)
    random_draws.begin()
