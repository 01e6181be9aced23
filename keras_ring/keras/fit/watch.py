"""The measurements of one `fit` on this rank, and reports of all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from absl import logging

from keras_ring._typing import Model
from keras_ring.core import topology
from keras_ring.keras.agreement import training_end
from keras_ring.keras.fit.figures import Figures, peak_memory
from keras_ring.keras.optimizer.trained_by import trained_by

# The methods of a `Watch`, by the methods of callbacks.
_TOLD = {
    "on_train_begin": "train_begin",
    "on_train_batch_begin": "step_begin",
    "on_train_batch_end": "step_end",
    "on_test_begin": "pause",
    "on_epoch_end": "pause",
    "on_train_end": "train_end",
}

Reporter = Callable[[list[Figures], list[int]], None]


class Watch:
    """The measurements of one `fit`, for the reporters that it has.

    Args:
        model: The `keras.Model` that is trained.
        data: The data that it is trained on, as `fit` was given them.
    """

    def __init__(self, model: Model, data: Any) -> None:
        self.model = model
        self.data = data
        # A text about this rank's part of the data; empty if it is not known.
        self.part = ""
        # Called with the figures of ranks, and with these ranks.
        self.reporters: list[Reporter] = []
        # The list of callbacks of this `fit`, once Keras has made it.
        self.callbacks: Any = None
        self._has_failed = False
        self._began = time.monotonic_ns()
        self._before = topology.metrics()
        # Keras traces in the first call, which is not typical, so the figures
        # that explain the time are counted from the second call on.
        self._calls = 0
        self._usual: tuple[int, dict[str, int]] | None = None
        # The time at which the present step began. The time at which a row of
        # steps without a pause began, with the number of steps before it.
        self._step: int | None = None
        self._row: tuple[int, int] | None = None
        self._steady_ns = 0
        self._steady_steps = 0
        # The time of collectives before the present step.
        self._executed_ns = 0
        self._hidden_ns = 0
        self._by_rank: list[Figures] = []

    def told(self, name: str) -> None:
        """Records an event, of which all callbacks of the `fit` were told.

        Errors do not stop a training: nothing is recorded any more.

        Args:
            name: String, the method of a callback.
        """
        if self._has_failed or name not in _TOLD:
            return
        try:
            getattr(self, _TOLD[name])()
        except Exception as error:
            self._has_failed = True
            logging.warning(
                "keras_ring: this `fit` is not measured any more, for %s: %s",
                type(error).__name__,
                error,
            )

    def samples_per_step(self) -> float:
        """Returns this rank's mean samples per step, 0 if not known yet."""
        now = topology.metrics()
        steps = now["fit_steps"] - self._before["fit_steps"]
        samples = now["samples"] - self._before["samples"]
        return samples / steps if steps else 0.0

    def measured(self) -> Figures:
        """Returns the figures of this rank so far."""
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
        """Makes ranks exchange their figures at the end of the training."""
        training_end.accompany(self)

    def step_begin(self) -> None:
        """Records the begin of a step, or of several that run at once."""
        now, counters = time.monotonic_ns(), topology.metrics()
        self._calls += 1
        if self._calls == 2:
            self._usual = (now, counters)
        if self._row is None and self._calls > 1:
            self._row = (now, counters["fit_steps"])
        self._executed_ns = counters["execute_ns"]
        self._step = now

    def step_end(self) -> None:
        """Records the time of collectives before the step's last tensor."""
        if self._row is None or self._step is None:
            return
        counters = topology.metrics()
        # Otherwise the last tensor is of an earlier step.
        if counters["submitted_ns"] >= self._step:
            executed = counters["execute_ns"] - self._executed_ns
            hidden = counters["submitted_execute_ns"] - self._executed_ns
            self._hidden_ns += min(max(hidden, 0), executed)

    def pause(self) -> None:
        """Records that something else than a step comes next."""
        if self._row is not None:
            began, steps = self._row
            self._steady_ns += time.monotonic_ns() - began
            self._steady_steps += topology.metrics()["fit_steps"] - steps
        self._row = self._step = None

    def train_end(self) -> None:
        """Calls the reporters with the figures of the ranks."""
        if not self.reporters:
            return
        by_rank, ranks = self._by_rank, list(trained_by(self.model).ranks)
        if len(by_rank) != len(ranks):
            # The ranks have not exchanged their figures.
            by_rank, ranks = [self.measured()], [topology.rank()]
        for report in self.reporters:
            report(by_rank, ranks)

    def close(self) -> None:
        """Stops accompanying the training, perhaps after an exception."""
        training_end.accompany(None)

    def figures(self) -> list[int]:
        """Returns the figures to send to other ranks, none after an error."""
        try:
            return list(self.measured())
        except Exception as error:
            logging.debug("keras_ring: nothing was measured: %s", error)
            return []

    def received(self, by_rank: npt.NDArray[Any]) -> None:
        """Takes the figures of all ranks, a row each."""
        self._by_rank = [Figures.of_row(row) for row in by_rank.tolist()]
