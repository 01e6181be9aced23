"""`fit` of a program for one process, on all ranks."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_ring._typing import Callback, Logs, Model, Tensor
from keras_ring.core import arrays, topology
from keras_ring.core.notices import count, say
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras import scope
from keras_ring.keras.agreement import same_batch
from keras_ring.keras.backends import backend
from keras_ring.keras.callbacks.broadcast import (
    BroadcastGlobalVariablesCallback,
)
from keras_ring.keras.fit import watching
from keras_ring.keras.lanes import compat, events, hooks, keras
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.model import metric_state, model_optimizers
from keras_ring.keras.model.sync_batch_normalization import (
    counted_moments_of_all_ranks,
)
from keras_ring.keras.optimizer import weighted_losses
from keras_ring.keras.optimizer.mixin import distributed_settings
from keras_ring.keras.optimizer.optimizer import distribute_optimizer
from keras_ring.keras.optimizer.reduction import ReductionSettings
from keras_ring.unchanged import (
    batch_logs,
    batch_watchers,
    callbacks_outside,
    data_passes,
    ending,
    script,
    shared_counts,
    trackers,
)
from keras_ring.unchanged.data_passes import Pass
from keras_ring.unchanged.portable import (
    all_rows,
    own_steps,
    parts,
    random_draws,
    refusals,
    results,
    row_check,
    same_batches,
)
from keras_ring.unchanged.settings import AutoSettings

_PURPOSE = "a program of one process trains on all ranks"


def install(settings: AutoSettings) -> None:
    """Changes the models of Keras. Calling it once is enough.

    Args:
        settings: The `AutoSettings` of the program.
    """
    weighted_losses.install(distributed_settings, whole_batches=True)
    hooks.subscribe(
        events.FIT_RUNS,
        functools.partial(_on_all_ranks, settings=settings),
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )
    hooks.subscribe(
        events.STEP_RUN,
        _of_rank,
        ring=Ring.UNCHANGED,
        purpose="a step is on this rank's part of a batch, with random numbers "
        "of its own",
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
        location = script.location()
        if not data_passes.is_of_all_ranks(self, (wanted["x"], wanted["y"])):
            say(
                f"model {self.name!r}{location}: the program divides its data, "
                "or has made its optimizer one of all ranks, so it is left "
                "alone",
                location=location,
            )
            with data_passes.alone():
                return fit(self, *args, **kwargs)
        prepare(self)
        this = Pass(self, is_training=True)
        this.is_split = True
        this.digests = same_batches.Digests()
        this.reads = _text_of(wanted)
        say(f"fit: {this.reads}")
        if settings.explain:
            say("explained; nothing is trained, and the program ends here")
            sys.exit(0)
        wanted["callbacks"] = _with_ours(wanted["callbacks"])
        random_draws.share()
        with data_passes.running(this):
            history = fit(*given.args, **given.kwargs)
        shared_counts.note_state_of_all(self)
        # After this, other ranks can read what rank 0 has written.
        arrays.barrier(name="auto/fit/end", process_set=global_process_set)
        return history

    return fit_on_all_ranks


def prepare(model: Model) -> None:
    """Prepares a model for training on parts of batches.

    Args:
        model: A `keras.Model`, which is compiled.

    Raises:
        AutoError: If it cannot be trained so.
    """
    refusals.check_model(model)
    own_steps.prepare(model, _of_rank)
    _distribute(model)
    trackers.tell()


def _distribute(model: Model) -> None:
    """Makes the optimizers of a model average gradients over all ranks."""
    location = script.location()
    for optimizer in model_optimizers.optimizers_of(model).values():
        if distributed_settings(optimizer) is None:
            distribute_optimizer(optimizer, ReductionSettings(whole_batch=True))
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        say(
            f"optimizer {type(inner).__name__} of model "
            f"{model.name!r}{location}: gradients averaged over "
            f"{topology.size()} ranks",
            location=location,
        )
    num_norms = sum(
        isinstance(layer, keras.layers.BatchNormalization)
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


def _text_of(wanted: dict[str, Any]) -> str:
    """Returns a text about the part of the data that a rank trains on."""
    size = topology.size()
    x = wanted["x"]
    leaves = [leaf for leaf in backend.flatten(x) if hasattr(leaf, "shape")]
    if not leaves:
        return f"{type(x).__name__}; each batch is divided by rows"
    rows = wanted["batch_size"] or 32
    low, rest = divmod(rows, size)
    divided = f"{size} x {low}" if not rest else f"{size} x {low} + {rest}"
    samples = len(leaves[0])
    about = "" if samples % size == 0 else "about "
    return (
        f"{count(samples, 'sample')}, {about}{samples / size:,.0f} each; batch "
        f"{rows} = {divided}"
    )


def _of_batch(model: Model, logs: Logs) -> Logs:
    del logs
    return results.combined(model, "auto/fit/batch")


def _with_ours(callbacks: Any) -> Any:
    ours: list[Callback] = [BroadcastGlobalVariablesCallback(), _Watch()]
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    given = callbacks.callbacks if is_list else backend.flatten(callbacks or [])
    if any(map(batch_watchers.looks_at_training, given)):
        ours.append(batch_logs.BatchLogs(_of_batch))
    given = callbacks_outside.on_rank_zero(given)
    if not is_list:
        return [*ours, *given]
    callbacks.callbacks[:] = [*ours, *given]
    for each in ours:
        each.set_model(callbacks._model)
        each.set_params(callbacks.params)
    return callbacks


class _Watch(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that arranges the checks of one `fit`."""

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Keeps the random numbers of ranks apart."""
        model = self.model
        # Ranks have parts of one batch here, whether these are alike or not.
        same_batch.leave_out(model)
        running = data_passes.current()
        watch = watching.current()
        if running is not None and watch is not None:
            watch.part = running.reads
        random_draws.begin()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Makes the first batch of the epoch be checked, and the metrics."""
        # On JAX, `self.model` would give variables their values in a step.
        model = self.model
        arrange_check(model)


def arrange_check(model: Model) -> None:
    """Makes the next batch of a model be checked, and its metrics.

    All ranks must call this before a batch of training.

    Args:
        model: A `keras.Model`, which is prepared.
    """
    check = own_steps if own_steps.has_own(model) else row_check
    check.arrange(
        model, lambda: metric_state.watch(model, all_rows.refuse_no_sum)
    )


def _of_rank(train_step: Callable[..., Any]) -> Callable[..., Any]:
    # The last argument is the batch; JAX has the state of the model before it.
    @functools.wraps(train_step)
    def step_of_rank(self: Model, *args: Any) -> Any:
        running = data_passes.current()
        if running is None or not running.is_training or parts.current():
            return train_step(self, *args)
        *others, batch = args
        if own_steps.is_for_all(self, batch):
            with scope.inside(part=parts.WholeStep()):
                if topology.rank() == 0:
                    return train_step(self, *others, batch)
                return _without_counting(train_step, self, *others, batch)
        with parts.on_part(self, batch) as step, random_draws.in_step():
            rows = step.rows_of(batch)
            if step.has_rows:
                return train_step(self, *others, rows)
            return _without_counting(train_step, self, *others, rows)

    return step_of_rank


def _without_counting(
    train_step: Callable[..., Any], model: Model, *args: Any
) -> Any:
    """Makes a step of a rank whose metrics are not to count its rows.

    Another rank counts them, or there are none. Those that count the rows of
    all ranks do so here, too.
    """
    if len(args) > 1:
        # On JAX, the state is an argument and a result; its last part is that
        # of the metrics.
        logs, state = train_step(model, *args)
        own = {id(each) for each in all_rows.variables_of_ranks(model)[0]}
        counted = [
            before if id(variable) in own else after
            for variable, before, after in zip(
                model.metrics_variables, args[0][-1], state[-1], strict=True
            )
        ]
        return logs, (*state[:-1], counted)
    kept = {
        id(each): np.array(compat.as_numpy(each))
        for each in compat.metrics_variables(model)
    }
    found = train_step(model, *args)
    for variable in all_rows.variables_of_ranks(model)[0]:
        if id(variable) in kept:
            compat.assign(variable, kept[id(variable)])
        else:
            compat.assign(variable, np.zeros(variable.shape))
    return found


def _moments(
    layer: Any, inputs: Tensor, axes: Sequence[int], mask: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Returns the moments of the whole batch, in a step on a part."""
    step = parts.current()
    if not isinstance(step, parts.PartStep):
        return None
    if not step.has_rows:
        mask = keras.ops.zeros(inputs.shape[:-1], "bool")
    return counted_moments_of_all_ranks(layer.moving_mean, inputs, axes, mask)
