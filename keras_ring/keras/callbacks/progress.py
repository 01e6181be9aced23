"""Shows the training of all ranks by one bar."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from keras_ring._typing import Logs
from keras_ring.core import gpus, notices, topology
from keras_ring.keras.agreement import data_parts
from keras_ring.keras.backends import backend
from keras_ring.keras.fit import one_writer, watching
from keras_ring.keras.fit.figures import Figures
from keras_ring.keras.fit.summary import rate_text, summary
from keras_ring.keras.fit.watch import Watch
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.optimizer.trained_by import trained_by

# Seconds between two lines within an epoch, if no bar can be drawn.
_LINE_EVERY_SECONDS = 30.0


class Progress(keras.callbacks.ProgbarLogger):  # type: ignore[misc]
    """Shows the training of all ranks by one bar, on the lowest rank.

    In a job of several ranks `fit` uses this callback instead of Keras' own
    bar, unless `verbose` is 0. It is that bar, with the number of samples that
    all ranks together train on in a second. Before the first epoch it prints
    which ranks train, how, and on which part of the data. After the last epoch
    it prints how fast the training was, which share of the time ranks
    communicated and how much of that computation has hidden, and which rank
    the others have waited for, and why.

    The lines about all ranks need `BroadcastGlobalVariablesCallback`: in its
    last exchange the ranks send each other their measurements. Otherwise the
    lines are about rank 0. Of the first steps, which are traced, only the time
    is counted.

    If no bar can be drawn, as in a file, it prints a line for each epoch and
    one every 30 seconds, without control characters.

    Give `keras.callbacks.ProgbarLogger()` to `fit` to use Keras' bar instead.

    Args:
        enabled: Boolean. If `False`, nothing is shown, as with `verbose=0`.
            Defaults to `True`.

    Example:
    ```python
    model.fit(data, callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()])
    # The same for a job of one rank.
    model.fit(data, callbacks=[kr.callbacks.Progress()])
    ```
    """

    def __init__(self, *, enabled: bool = True) -> None:
        super().__init__(**compat.PROGBAR_ARGUMENTS)
        self.enabled = enabled
        self._watch: Watch | None = None
        self._num_ranks = 1
        self._said = 0.0
        # Time at which the first step of this epoch ended, and its batch.
        self._epoch: tuple[float, int] | None = None
        watching.install()

    def set_params(self, params: dict[str, Any]) -> None:
        """Takes the parameters of `fit`."""
        super().set_params(params)
        if not self.enabled:
            self.verbose = 0
        elif self.verbose == 1 and not _can_draw():
            self.verbose = 2

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Prints which ranks train, and how."""
        super().on_train_begin(logs)
        self._watch = None
        self._said = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        """Begins to show, on the rank that does so."""
        if not self.verbose or one_writer.is_silent(self):
            return
        self._watch = watching.current()
        if self._watch is None:
            return
        self._num_ranks = trained_by(self.model).size()
        self._watch.reporters.append(self._report)
        _say(_banner(self._watch, self._num_ranks))

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Moves the bar, or prints a line now and then."""
        super().on_train_batch_end(batch, logs)
        now = time.monotonic()
        if self._epoch is None:
            # Counted from the first step of an epoch on, as by the bar.
            self._epoch = (now, batch)
        if self.verbose != 2 or now - self._said < _LINE_EVERY_SECONDS:
            return
        if not one_writer.is_silent(self):
            self._said = now
            target = self.target or "unknown"
            began, first = self._epoch
            seconds = (now - began) / max(batch - first, 1)
            print(f"{batch + 1}/{target}{self._rate(seconds)}", flush=True)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Begins a bar."""
        if self._watch is None and topology.is_elastic():
            # The job may have lost the rank that has shown it until now.
            self._begin()
        super().on_epoch_begin(epoch, logs)
        self._epoch = None
        self._num_ranks = trained_by(self.model).size()

    def _implements_train_batch_hooks(self) -> bool:
        """Returns `True`: otherwise Keras 2 omits the calls in an epoch."""
        return True

    def _maybe_init_progbar(self) -> None:
        super()._maybe_init_progbar()
        bar = self.progbar
        plain = getattr(bar, "_format_time", None)
        if plain is None or "_format_time" in vars(bar):
            return

        def with_rate(time_per_unit: float, unit: str) -> str:
            is_step = unit == bar.unit_name
            rate = self._rate(time_per_unit) if is_step else ""
            return f"{plain(time_per_unit, unit)}{rate}"

        bar._format_time = with_rate

    def _rate(self, step_seconds: float) -> str:
        """Returns the samples per second of all ranks, if they are known.

        Args:
            step_seconds: Float, the seconds of a step of this epoch, which
                the bar shows on the same line.
        """
        if self._watch is None or step_seconds <= 0:
            return ""
        batch = self._watch.samples_per_step() * self._num_ranks
        return f" - {rate_text(batch / step_seconds)}" if batch else ""

    def _report(self, by_rank: list[Figures], ranks: list[int]) -> None:
        self._watch = None
        _say(summary(by_rank, ranks))


def _can_draw() -> bool:
    """Returns whether a line can be redrawn, by the same rule as Keras."""
    return (
        sys.stdout.isatty()
        or "ipykernel" in sys.modules
        or "PYCHARM_HOSTED" in os.environ
    )


def _banner(watch: Watch, num_ranks: int) -> list[str]:
    hosts, threads = topology.cross_size(), _num_threads()
    count = notices.count
    lines = [
        f"{count(num_ranks, 'rank')} on {count(hosts, 'host')},"
        f" {count(threads, 'thread')} each"
    ]
    if num_ranks > 1:
        how = gpus.explanation(of_gpus=backend.has_gpus())
        lines.append(f"reduction by {how.splitlines()[0]}")
        part = watch.part or data_parts.find(watch.data)
        lines.append(
            "data: each rank's own, not split by kr.data.shard"
            if part is None
            else f"data: {part}"
        )
    optimizer = getattr(watch.model, "optimizer", None)
    if optimizer is not None and compat.has_settable_learning_rate(optimizer):
        rate = compat.learning_rate(optimizer)
        lines.append(f"{optimizer.name} with a learning rate of {rate:.4g}")
    return lines


def _num_threads() -> int:
    """Returns on how many threads the framework runs one operation."""
    return (
        backend.num_threads()
        # TensorFlow's own variable, which `keras-ring run` sets.
        or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0)
        or len(os.sched_getaffinity(0))
    )


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"keras_ring: {line}", flush=True)
