"""What one `fit` has done on this rank, and what all ranks make of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from absl import logging

from keras_ring._agreement import training_end
from keras_ring._fit.figures import Figures, peak_memory
from keras_ring._keras import keras
from keras_ring._runtime import topology
from keras_ring._training.trained_by import trained_by
from keras_ring._typing import Callback, Logs, Model

Reporter = Callable[[list[Figures], list[int]], None]


class Watch:
    """Measures a `fit`, for those who report on it.

    Args:
        model: The `keras.Model` that is trained.
        data: What it is trained on, as `fit` was given it.
    """

    def __init__(self, model: Model, data: Any) -> None:
        self.model = model
        self.data = data
        # Which part of the data this rank has, where somebody knows.
        self.part = ""
        # Are told the figures of ranks, and which ranks these are.
        self.reporters: list[Reporter] = []
        self._callback: Callback | None = None
        self._began = time.monotonic_ns()
        self._before = topology.metrics()
        # Keras traces the first call, which is not like the others: what is
        # to be explained is counted from the second on.
        self._calls = 0
        self._usual: tuple[int, dict[str, int]] | None = None
        # Begin of the step that runs; of steps without a pause, and the
        # number of steps before these.
        self._step: int | None = None
        self._row: tuple[int, int] | None = None
        self._steady_ns = 0
        self._steady_steps = 0
        # What was executed before the step that runs.
        self._executed_ns = 0
        self._hidden_ns = 0
        self._by_rank: list[Figures] = []

    @property
    def is_called(self) -> bool:
        """Whether Keras tells it what happens."""
        return self._callback is not None

    def callback(self) -> Callback:
        """Returns the callback that tells it what happens."""
        self._callback = _WatchCallback(self)
        return self._callback

    def samples_per_step(self) -> float:
        """Returns on how many this rank trains, 0 if that is not known yet."""
        now = topology.metrics()
        steps = now["fit_steps"] - self._before["fit_steps"]
        samples = now["samples"] - self._before["samples"]
        return samples / steps if steps else 0.0

    def measured(self) -> Figures:
        """Returns what this rank has measured so far."""
        now, counters = time.monotonic_ns(), topology.metrics()
        steady_ns, steady_steps = self._steady_ns, self._steady_steps
        if self._row is not None:
            steady_ns += now - self._row[0]
            steady_steps += counters["fit_steps"] - self._row[1]
        began, before = self._usual or (self._began, self._before)
        since = {name: count - before[name] for name, count in counters.items()}
        return Figures(
            fit_ns=now - self._began,
            steps=counters["fit_steps"] - self._before["fit_steps"],
            samples=counters["samples"] - self._before["samples"],
            usual_ns=now - began,
            steady_ns=steady_ns,
            steady_steps=steady_steps,
            data_wait_ns=since["data_wait_ns"],
            checkpoint_ns=since["checkpoint_ns"],
            execute_ns=since["execute_ns"],
            hidden_ns=self._hidden_ns,
            buckets=since["buckets"],
            last_buckets=since["last_buckets"],
            late_ns=since["late_ns"],
            peak_bytes=peak_memory(),
        )

    def train_begin(self) -> None:
        """Has ranks tell each other at the end what they have measured."""
        training_end.accompany(self)

    def step_begin(self) -> None:
        """Notes that a step begins, or several that Keras runs at once."""
        now, counters = time.monotonic_ns(), topology.metrics()
        self._calls += 1
        if self._calls == 2:
            self._usual = (now, counters)
        if self._row is None and self._calls > 1:
            self._row = (now, counters["fit_steps"])
        self._executed_ns = counters["execute_ns"]
        self._step = now

    def step_end(self) -> None:
        """Notes what was executed in the step until its last tensor came."""
        if self._row is None or self._step is None:
            return
        counters = topology.metrics()
        # Else the last tensor is of an earlier step.
        if counters["submitted_ns"] >= self._step:
            executed = counters["execute_ns"] - self._executed_ns
            hidden = counters["submitted_execute_ns"] - self._executed_ns
            self._hidden_ns += min(max(hidden, 0), executed)

    def pause(self) -> None:
        """Notes that no step comes next."""
        if self._row is not None:
            began, steps = self._row
            self._steady_ns += time.monotonic_ns() - began
            self._steady_steps += topology.metrics()["fit_steps"] - steps
        self._row = self._step = None

    def train_end(self) -> None:
        """Tells whoever wants to know how it went."""
        if not self.reporters:
            return
        by_rank, ranks = self._by_rank, list(trained_by(self.model).ranks)
        if len(by_rank) != len(ranks):
            # Nobody has asked all of them.
            by_rank, ranks = [self.measured()], [topology.rank()]
        for report in self.reporters:
            report(by_rank, ranks)

    def close(self) -> None:
        """Ends, perhaps after an exception."""
        training_end.accompany(None)

    def figures(self) -> list[int]:
        """Returns what other ranks are told."""
        try:
            return list(self.measured())
        except Exception as error:
            logging.debug("keras_ring: nothing was measured: %s", error)
            return []

    def received(self, by_rank: npt.NDArray[Any]) -> None:
        """Takes what all ranks have told."""
        self._by_rank = [Figures.of_row(row) for row in by_rank.tolist()]


class _WatchCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells a watch what Keras does.

    Args:
        watch: A `Watch`.
    """

    # Keras 2: it needs no results, for which the program would have to wait.
    _supports_tf_logs = True

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch: Watch | None = watch

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._tell(Watch.train_begin)

    def on_train_batch_begin(
        self, batch: int, logs: Logs | None = None
    ) -> None:
        self._tell(Watch.step_begin)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._tell(Watch.step_end)

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._tell(Watch.pause)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._tell(Watch.pause)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._tell(Watch.train_end)

    def _tell(self, method: Callable[[Watch], None]) -> None:
        """Calls a method of the watch, which must not stop a training."""
        if self._watch is None:
            return
        try:
            method(self._watch)
        except Exception as error:
            self._watch = None
            logging.warning(
                "keras_ring: this `fit` is not measured any more, for %s: %s",
                type(error).__name__,
                error,
            )
