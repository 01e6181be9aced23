"""`train_on_batch` of a program for one process, on all ranks.

All ranks call it with the same batch, and each trains on its part of the rows,
as in `fit`. The results are those of the whole batch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Logs, Model, Structure
from keras_ring.core import notices
from keras_ring.core.notices import say
from keras_ring.core.objects import broadcast_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError
from keras_ring.keras.agreement.next_batch import on_next_call
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer import whole_batch
from keras_ring.keras.optimizer.whole_batch import WholeStep
from keras_ring.tensorflow.dataset_iterators import (
    is_iterator,
    iterator_of,
    next_of,
)
from keras_ring.unchanged import (
    batch_digests,
    comparisons,
    data_passes,
    ending,
    results,
    script,
    shared_counts,
    small_batches,
    step_check,
    step_comparison,
    training,
    update_search,
)
from keras_ring.unchanged.data_passes import Pass
from keras_ring.unchanged.settings import AutoSettings

_PURPOSE = "single batches are divided between ranks"
_WHOLE_STEP = "_keras_ring_whole_step"
_NUM_TRAINED = "_keras_ring_single_batches"


def install(settings: AutoSettings) -> None:
    """Changes the models of Keras. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.
    """
    train = functools.partial(_on_all_ranks, settings)
    hooks.subscribe(
        events.BATCH_TRAINED,
        train,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.BATCH_TESTED,
        _tested,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )


def _on_all_ranks(
    settings: AutoSettings, train: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(train)
    def train_on_part(self: Model, *args: Any, **kwargs: Any) -> Any:
        ending.note_training()
        if data_passes.current() is not None or not data_passes.is_of_all_ranks(
            self, args
        ):
            return train(self, *args, **kwargs)
        if settings.per_rank:
            raise AutoError(
                f"{script.line()} calls `train_on_batch` of model "
                f"{self.name!r}, whose batches are what the program makes "
                "them: `--batch per-rank` is for what `fit` reads. Leave it "
                "away."
            )
        training.prepare(self)
        location = script.location()
        say(
            f"train_on_batch of model {self.name!r}{location}: divided by rows",
            location=location,
        )
        if settings.explain:
            notices.say(
                "explained; nothing is trained, and the program ends here"
            )
            sys.exit(0)
        running = Pass(self, is_training=True)
        running.is_split = running.has_data = True
        with data_passes.running(running):
            self.make_train_function()
            on_next_call(self, functools.partial(_train_and_combine, self))
            return train(self, *args, **kwargs)

    return train_on_part


def _train_and_combine(
    model: Model, train: Run, iterator: Iterator[Structure]
) -> Logs:
    found: Logs
    is_dataset = is_iterator(iterator)
    (batch,) = next_of(iterator, 1) if is_dataset else [next(iterator)]
    number = vars(model).get(_NUM_TRAINED, 0) + 1
    if number == 1:
        step_comparison.build_and_share(model, batch)
    is_for_all = small_batches.are_for_all(model, batch)
    if is_for_all:
        own = backend.map_structure(float, dict(_whole_step_of(model)(batch)))
        found = broadcast_object(own, name="auto/batch/results")
    else:
        one = iterator_of([batch], iterator) if is_dataset else iter([batch])
        with step_check.refusing_parts(model, batch):
            if step_check.look_at_single(model, batch):
                model.make_train_function(force=True)
                train = model.train_function
            logs = train(one)
    # Bypasses the model's own `__setattr__`, which tracks attributes.
    object.__setattr__(model, _NUM_TRAINED, number)
    if comparisons.is_due(number):
        _compare(model, number)
    if not is_for_all:
        step_check.check_single(model, batch)
        found = results.combined(model, logs, "auto/batch", at_end=False)
    shared_counts.note_state_of_all(model)
    return found


def _whole_step_of(model: Model) -> Callable[[Structure], Logs]:
    """Returns a function that trains on all rows of a batch on each rank."""
    step = vars(model).get(_WHOLE_STEP)
    if step is None:

        def train(batch: Structure) -> Logs:
            batch_digests.of_steps(model).note(batch)
            with whole_batch.step(WholeStep(global_process_set)):
                logs: Logs = model.train_step(batch)
            return logs

        step = update_search.compiled(train)
        object.__setattr__(model, _WHOLE_STEP, step)
    found: Callable[[Structure], Logs] = step
    return found


def _compare(model: Model, number: int) -> None:
    """Raises an error if ranks have different data or weights."""
    batch_digests.of_steps(model).require_same("auto/batch/data")
    comparisons.require_same_weights(model, number)


def _tested(test: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(test)
    def test_and_note(self: Model, *args: Any, **kwargs: Any) -> Any:
        found = test(self, *args, **kwargs)
        if data_passes.current() is None and data_passes.is_of_all_ranks(
            self, args
        ):
            # Each rank has counted the whole batch.
            shared_counts.note_state_of_all(self)
        return found

    return test_and_note
