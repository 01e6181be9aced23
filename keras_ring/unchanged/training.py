"""`fit` of a program for one process, on all ranks."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_ring._typing import (
    Callback,
    Layer,
    Logs,
    Model,
    Structure,
    Tensor,
)
from keras_ring.core import notices, topology
from keras_ring.core.notices import count, say
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError
from keras_ring.keras.agreement import same_batch
from keras_ring.keras.agreement.next_batch import on_next_call
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.callbacks.broadcast import (
    BroadcastGlobalVariablesCallback,
)
from keras_ring.keras.fit import input_wait, watching
from keras_ring.keras.lanes import (
    deterministic_random,
    events,
    hooks,
    keras,
    writers,
)
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.model import metric_state, model_optimizers
from keras_ring.keras.model.sync_batch_normalization import (
    counted_moments_of_all_ranks,
)
from keras_ring.keras.optimizer import (
    empty_batches,
    weighted_losses,
    whole_batch,
)
from keras_ring.keras.optimizer.mixin import distributed_settings
from keras_ring.keras.optimizer.optimizer import distribute_optimizer
from keras_ring.keras.optimizer.reduction import ReductionSettings
from keras_ring.keras.optimizer.whole_batch import OwnBatchStep, PartStep, Step
from keras_ring.tensorflow import batch_rows, gathers
from keras_ring.unchanged import (
    assignments,
    batch_digests,
    batch_logs,
    batch_watchers,
    callbacks_outside,
    data_passes,
    ending,
    learning_rate,
    results,
    returned,
    script,
    shared_counts,
    small_batches,
    state_combining,
    stateful_layers,
    step_check,
    trackers,
    whole_functions,
)
from keras_ring.unchanged.data_passes import Pass
from keras_ring.unchanged.settings import AutoSettings

_PURPOSE = "a program of one process trains on all ranks"


def install(settings: AutoSettings) -> None:
    """Changes the models of Keras. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.
    """
    weighted_losses.install(distributed_settings, whole_batches=True)
    whole_batch.install()
    assignments.install()
    empty_batches.install()
    input_wait.count_by(_rows_of_rank)
    fits = functools.partial(_on_all_ranks, settings=settings)
    hooks.subscribe(
        events.FIT_RUNS,
        fits,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.STEP_TRACED, _in_step, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.SEED_DRAWN,
        deterministic_random.of_rank,
        ring=Ring.UNCHANGED,
        purpose="ranks draw the same between steps",
    )
    hooks.subscribe(
        events.MOMENTS,
        _moments,
        ring=Ring.UNCHANGED,
        purpose="moments are of the whole batch in steps on parts of it",
    )


def _on_all_ranks(
    fit: Callable[..., Any], settings: AutoSettings
) -> Callable[..., Any]:
    parameters = inspect.signature(fit)

    @functools.wraps(fit)
    def fit_on_all_ranks(self: Model, *args: Any, **kwargs: Any) -> Any:
        ending.note_training()
        given = parameters.bind(self, *args, **kwargs)
        given.apply_defaults()
        wanted = given.arguments
        if data_passes.is_alone():
            return fit(self, *args, **kwargs)
        if not data_passes.is_of_all_ranks(self, (wanted["x"], wanted["y"])):
            location = script.location()
            say(
                f"model {self.name!r}{location}: the program divides its data, "
                "or has made its optimizer one of all ranks, so it is left "
                "alone",
                location=location,
            )
            with data_passes.alone():
                return fit(self, *args, **kwargs)
        prepare(self)
        if settings.explain:
            _explain(self, wanted)
        this = Pass(self, is_training=True)
        # The reading of validation data depends on it. The program's own
        # callbacks are checked, because wrappers of them have every method.
        this.is_watched = results.are_watched(wanted["callbacks"])
        wanted["callbacks"] = _with_ours(
            wanted["callbacks"], _ours(self, wanted["callbacks"], settings)
        )
        with data_passes.running(this), small_batches.refusing(self):
            try:
                history = fit(*given.args, **given.kwargs)
            finally:
                step_check.end(self)
        # After this, other ranks can read what rank 0 has written.
        gathers.barrier(name="auto/fit/end")
        shared_counts.note_state_of_all(self)
        return history

    return fit_on_all_ranks


def prepare(model: Model) -> None:
    """Prepares a model for training on parts of batches.

    Args:
        model: A `keras.Model`, which is compiled.

    Raises:
        AutoError: If it has layers that cannot be trained so.
    """
    _require_known_normalization(model)
    stateful_layers.refuse(model)
    # This makes its variables before the step is traced.
    returned.of(model)
    distribute(model)
    trackers.tell()


def distribute(model: Model) -> None:
    """Makes the optimizers of a model average gradients over all ranks."""
    settings = ReductionSettings(whole_batch=True)
    location = script.location()
    for optimizer in model_optimizers.optimizers_of(model).values():
        if distributed_settings(optimizer) is None:
            distribute_optimizer(optimizer, settings)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        say(
            f"optimizer {type(inner).__name__} of model "
            f"{model.name!r}{location}: gradients averaged over "
            f"{topology.size()} ranks",
            location=location,
        )
    num_norms = sum(
        isinstance(layer, steps.BATCH_NORMALIZATION)
        for layer in model._flatten_layers()
    )
    what = "losses and metrics"
    if num_norms:
        what += f", and the moments of {count(num_norms, 'normalization')},"
    say(
        f"{what} of model {model.name!r}{location} are those of the whole "
        "batch",
        location=location,
    )


def _ours(
    model: Model, callbacks: Any, settings: AutoSettings
) -> list[Callback]:
    """Returns the callbacks to add to those of the program.

    Args:
        model: A `keras.Model`.
        callbacks: The callbacks of the program, as `fit` is given them.
        settings: The `AutoSettings` of the program.
    """
    ours = [BroadcastGlobalVariablesCallback(), _Watch()]
    given = backend.flatten(callbacks or [])
    if any(map(batch_watchers.looks_at_training, given)):
        ours.append(batch_logs.BatchLogs(_of_batch))
    if settings.per_rank:
        ours += learning_rate.scaled(model, settings)
    return ours


def _of_batch(model: Model, logs: Logs) -> Logs:
    return results.combined(model, logs, "auto/fit/batch", at_end=False)


def _with_ours(
    callbacks: Callback | Sequence[Callback] | None, ours: list[Callback]
) -> Any:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks[:] = callbacks_outside.on_rank_zero(
            callbacks.callbacks
        )
        steps.add_callbacks(callbacks, ours)
        return callbacks
    if callbacks is None:
        return ours
    flat = backend.flatten(callbacks)
    return [*ours, *callbacks_outside.on_rank_zero(flat)]


class _Watch(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that arranges and makes the checks of one `fit`.

    It has no method for batches, for which Keras would wait for each batch.
    """

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Checks the metrics, and arranges the checks of steps."""
        running = data_passes.current()
        # Ranks have parts of one batch here, whether these are alike or not.
        same_batch.leave_out(self.model)
        metric_state.watch(self.model, whole_functions.refuse_no_sum)
        if running is None:
            return
        watch = watching.current()
        if watch is not None:
            watch.part = running.reads
        if not running.has_own_batches:
            step_check.arrange(self.model)
        _compare_after_first(self.model, running)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Compares the state that steps keep, before it is saved."""
        step_check.require_same_state(self.model, f"After epoch {epoch + 1:,}")


def _compare_after_first(model: Model, running: Pass) -> None:
    """Makes ranks compare, after the first step, the data that it has read."""

    def train_and_compare(train: Run, iterator: Iterator[Structure]) -> Any:
        logs = train(iterator)
        if running.digests is not None:
            running.digests.require_same("auto/fit/first")
        return logs

    on_next_call(model, train_and_compare)


def _rows_of_rank(rows: Any) -> Any:
    """Returns the number of rows of a batch that this rank trains on."""
    running = data_passes.current()
    if running is None or not running.is_training or running.has_own_batches:
        return rows
    return batch_rows.rows_of_rank(rows, global_process_set)


def _in_step(
    model: Model, train_step: Callable[[Structure], Any]
) -> Callable[[Structure], Any]:
    def step_on_part(batch: Structure) -> Any:
        running = data_passes.current()
        if running is None or not running.is_training:
            return train_step(batch)
        step: Step
        if running.has_own_batches:
            step = OwnBatchStep(batch, global_process_set)
        else:
            step = PartStep(batch, global_process_set)
            # Nothing depends on this operation, so that at the end of the data
            # operations without data, such as the counter of steps, run as in
            # one process.
            batch_digests.of_steps(model).note(batch)
        rows = step.rows_of(batch)
        with whole_batch.step(step), steps.numbers_of_rank(topology.rank()):
            returned.of(model).note_share()
            with (
                state_combining.combining(model, step),
                whole_functions.metrics_of_all(model),
            ):
                return train_step(rows)

    return step_on_part


def _require_known_normalization(model: Model) -> None:
    for layer in model._flatten_layers():
        # Arguments of Keras 2.
        for name in ("renorm", "virtual_batch_size"):
            if (
                isinstance(layer, steps.BATCH_NORMALIZATION)
                and getattr(layer, name, None)
                and layer.trainable
            ):
                raise AutoError(
                    f"Layer {layer.name!r} is a `BatchNormalization` with "
                    f"`{name}`, which goes by a batch in a way that ranks with "
                    "parts of it cannot. Make it without."
                )


def _moments(
    layer: Layer, inputs: Tensor, axes: Sequence[int], mask: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Returns the moments of the whole batch, in a step on a part.

    Returns:
        A tuple of mean, variance and the number of elements, or `None` if
        there is no such step.
    """
    step = whole_batch.current()
    if step is None or not step.is_part:
        return None
    return counted_moments_of_all_ranks(layer.moving_mean, inputs, axes, mask)


def _explain(model: Model, wanted: dict[str, Any]) -> None:
    """Prints what `fit` would do, and ends the program."""
    with data_passes.running(Pass(model, is_training=True)):
        steps.read_nothing(wanted)
    for callback in backend.flatten(wanted["callbacks"] or []):
        if writers.writes_files(callback):
            say(f"files of {type(callback).__name__}: written by rank 0")
    notices.say("explained; nothing is trained, and the program ends here")
    sys.exit(0)
