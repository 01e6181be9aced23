"""Measures the time that a training loses to its input pipeline."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_ring._typing import Logs, Model, Structure, Variable
from keras_ring.core import arrays, generations, telemetry, topology
from keras_ring.core.process_sets import ProcessSet, is_alone
from keras_ring.keras.agreement.next_batch import on_next_call
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.fit import skipped_batches, watching
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.lanes.loss_scaling import inner_optimizer
from keras_ring.keras.model import model_state
from keras_ring.keras.optimizer.trained_by import trained_by
from keras_ring.observe.judge import percent

# The first call traces, and the second one keeps a batch.
_FIRST_MEASURED = 3
_FEWEST_CALLS = 3
# A smaller share of a step is not worth a change.
_NOTABLE_SHARE = 0.05
_STANDS_OUT = 1.2
_CLOSES_IT = (
    "What usually closes the gap: `dataset.cache()` after what is the same in "
    "each epoch,",
    "`dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE)`, "
    "`dataset.prefetch(tf.data.AUTOTUNE)` as the last step,",
    "files that each rank reads for itself: `kr.data.shard(files=...)`, and "
    "storage that is near.",
)


class InputPipeline(keras.callbacks.Callback):  # type: ignore[misc]
    """Measures how much faster training would be without an input pipeline.

    After some steps of the first epoch, `synthetic_steps` steps train on the
    same batch, without reading, decoding or augmenting data. The difference
    from the real steps is the cost of the input pipeline. Rank 0 prints it,
    with advice; the numbers are in `results`, on all ranks.

    Then the training goes on unchanged: the weights, the optimizer's variables,
    metrics and seed generators are restored. But random operations of
    TensorFlow without a generator, which are those of `tf.random` and of
    Keras 2's `Dropout`, draw other numbers than without this callback.

    All ranks must have it, with the same arguments. It works in a job of one
    rank, too.

    Args:
        synthetic_steps: Integer, the number of steps that repeat a batch, and
            about the number of real steps to measure before. Defaults to `50`.

    Example:
    ```python
    model.fit(data, callbacks=[kr.callbacks.InputPipeline()])
    ```
    """

    # Ranks that come in measure nothing if the others have done so.
    shared_state = ("results",)

    def __init__(self, synthetic_steps: int = 50) -> None:
        super().__init__()
        if synthetic_steps < 1:
            raise ValueError(
                "`synthetic_steps` must be at least 1. Received: "
                f"synthetic_steps={synthetic_steps}"
            )
        self.synthetic_steps = synthetic_steps
        # Seconds of a step, by rank: "real", "synthetic", and "data", which is
        # the wait for the input pipeline in a real step.
        self.results: dict[str, list[float]] | None = None
        watching.install()

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Resets the measurement."""
        self.results = None
        self._begin()

    def _begin(self) -> None:
        self._num_admissions = generations.num_admissions()
        self._calls = 0
        self._batch: tuple[Structure, Any] | None = None
        # Times at which the measured steps began and ended, each with the time
        # that the program had waited for data until then.
        self._began: tuple[float, int] | None = None
        self._ended: tuple[float, int] | None = None

    def on_train_batch_begin(
        self, batch: int, logs: Logs | None = None
    ) -> None:
        """Keeps a batch, and measures after enough real steps."""
        if self.results is not None or skipped_batches.is_skipping(self.model):
            return
        if self._num_admissions != generations.num_admissions():
            # Those that have come in begin as well.
            self._begin()
        self._calls += 1
        if self._calls == _FIRST_MEASURED - 1:
            self._keep_next_batch()
        elif self._calls == _FIRST_MEASURED:
            self._began = (time.perf_counter(), _waited())
        elif self._measured_calls() >= self._num_calls():
            self._measure()

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Records the time at which the steps of an epoch have ended."""
        if self._ended is None:
            self._ended = (time.perf_counter(), _waited())

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Measures with the real steps of a short epoch."""
        ended, self._ended = self._ended, None
        if self.results is not None or self._began is None:
            return
        # The last step counts, too.
        self._calls += 1
        if self._measured_calls() >= _FEWEST_CALLS:
            self._measure(ended)
        else:
            # The next epoch may be longer.
            self._calls, self._began = _FIRST_MEASURED - 2, None

    def _measured_calls(self) -> int:
        return self._calls - _FIRST_MEASURED

    def _num_calls(self) -> int:
        """Returns the number of calls with about `synthetic_steps` steps."""
        steps: int = compat.steps_per_execution(self.model)
        return max(math.ceil(self.synthetic_steps / steps), _FEWEST_CALLS)

    def _keep_next_batch(self) -> None:
        """Makes the next training step keep its batch."""
        model = self.model

        def keep_and_train(train: Run, iterator: Iterator[Structure]) -> Any:
            batches, ahead = backend.read_ahead(
                iterator, compat.steps_per_execution(model)
            )
            if batches:
                self._batch = (batches[0], iterator)
            return train(ahead)

        on_next_call(model, keep_and_train)

    def _measure(self, ended: tuple[float, int] | None = None) -> None:
        """Compares real steps with steps on one batch, on all ranks."""
        now, waited = ended or (time.perf_counter(), _waited())
        began, waited_before = self._began or (now, waited)
        steps = self._measured_calls() * compat.steps_per_execution(self.model)
        real = (now - began) / steps
        data = (waited - waited_before) / 1e9 / steps
        process_set = trained_by(self.model)
        watch = watching.current()
        if watch is not None:
            watch.pause()
        self.results = {}
        # All ranks decide the same, so that they train equally many steps.
        if not _all_have(self._batch is not None, process_set):
            return
        synthetic = self._synthetic_seconds()
        times = np.array([real, synthetic, data])
        if not is_alone(process_set):
            times = arrays.gather_rows(
                times, "input_pipeline/times", process_set
            )
        by_kind = np.atleast_2d(times).T.tolist()
        self.results = dict(
            zip(("real", "synthetic", "data"), by_kind, strict=True)
        )
        if topology.rank() == process_set.ranks[0]:
            for line in described(self.results, process_set.ranks):
                print(f"keras_ring: {line}", flush=True)

    def _synthetic_seconds(self) -> float:
        """Returns the time of a step that repeats a batch."""
        if self._batch is None:
            raise RuntimeError("no batch was kept")
        batch, source = self._batch
        self._batch = None
        calls = self._num_calls()
        iterator = backend.repeated(batch, source)
        train = backend.runner(self.model)
        with _unchanged(self.model), _uncounted():
            # The first call starts the iterator.
            _wait_for(train(iterator))
            began = time.perf_counter()
            for _ in range(calls):
                logs = train(iterator)
            _wait_for(logs)
            seconds = time.perf_counter() - began
        steps: int = compat.steps_per_execution(self.model)
        return seconds / (calls * steps)


def described(
    results: dict[str, list[float]], ranks: Sequence[int]
) -> list[str]:
    """Returns lines of text on the times of all ranks.

    Args:
        results: Seconds of a step by rank: real, synthetic, and waiting for
            data.
        ranks: Integers, the ranks in the order of `results`.
    """
    real = statistics.mean(results["real"])
    synthetic = statistics.mean(results["synthetic"])
    gap = max(real - synthetic, 0.0)
    line = (
        f"the input pipeline costs {percent(gap / max(real, 1e-9))} of a step:"
        f" {1e3 * gap:.1f} ms of {1e3 * real:.1f} ms"
    )
    waits = results["data"]
    most = max(range(len(waits)), key=lambda index: waits[index])
    others = [*waits[:most], *waits[most + 1 :]]
    if others and waits[most] > _STANDS_OUT * max(statistics.median(others), 0):
        wait = f"{1e3 * waits[most]:.1f} ms"
        line += f"; rank {ranks[most]} waits most for it, {wait}"
    if gap < _NOTABLE_SHARE * real:
        return [f"{line}. It is fast enough."]
    return [f"{line}.", *_CLOSES_IT]


def _all_have(has: bool, process_set: ProcessSet) -> bool:
    if is_alone(process_set):
        return has
    told = arrays.gather_rows(
        np.array([int(has)]), "input_pipeline/batch", process_set
    )
    return bool(told.all())


def _waited() -> int:
    return topology.metrics()["data_wait_ns"]


def _wait_for(logs: Structure) -> None:
    for leaf in backend.flatten(logs):
        backend.as_array(leaf)


@contextlib.contextmanager
def _unchanged(model: Model) -> Iterator[None]:
    """Restores the state of a model at the end of a context."""
    variables = _state(model)
    values = model_state.as_arrays(variables)
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            compat.assign(variable, value)


def _state(model: Model) -> list[Variable]:
    variables = [
        *model_state.state_variables(model),
        *model_state.local_variables(model),
    ]
    # Keras 2 has a counter of steps outside of the optimizer.
    counter = getattr(model, "_train_counter", None)
    if counter is not None:
        variables.append(counter)
    optimizer = getattr(model, "optimizer", None)
    optimizer = inner_optimizer(optimizer)
    passes = getattr(optimizer, "_passes", None)
    if passes is not None:
        # The `Accumulator` of an optimizer of Keras 2.
        variables += passes.variables()
    return list({id(variable): variable for variable in variables}.values())


@contextlib.contextmanager
def _uncounted() -> Iterator[None]:
    """Excludes samples inside of a context from the count of samples."""
    names = ("samples", "data_wait_ns")
    before = topology.metrics()
    try:
        yield
    finally:
        after = topology.metrics()
        for name in names:
            telemetry.count(name, before[name] - after[name])
