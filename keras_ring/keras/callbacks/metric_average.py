"""Computes metrics over the data of all ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from keras_ring._typing import Logs, Model
from keras_ring.core import arrays, reduce_ops
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
    is_alone,
)
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.model import metric_state


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Computes the metrics of an epoch over the data of all ranks.

    The state of each metric (sums and counts, confusion matrices and so on)
    is combined over all ranks before its result is computed. So the result is
    what one process would have computed from all the data, also where ranks
    had unequal amounts of it. It is the same on every rank, in the history
    and for all other callbacks, whatever their order.

    State is summed, unless a metric declares another `aggregation` for a
    variable: with `"mean"` it is averaged, and without any it is taken from
    the lowest rank. Keras declares the state of a metric as a sum by default.
    If the state of a metric of your own is not a sum, such as a maximum, and
    does not say so, that is an error.
    Values that a `train_step` or `test_step` of your own returns, and that do
    not come from the metrics of the model, are averaged.

    While an epoch runs, the progress bar shows the metrics of its own rank.

    In a program of Keras 2 that has switched off eager execution, the results
    of the ranks are averaged at the end of an epoch. This is exact if the
    metrics are means and ranks have equally many examples. Callbacks before
    this one see the results of their own rank.

    Give this callback to `fit`, where it also covers validation, or to
    `evaluate`. All ranks must do so.

    Args:
        process_set: A `kr.ProcessSet`, whose ranks' metrics are combined.
            Defaults to all ranks.

    Example:
    ```python
    model.fit(
        x, y, validation_data=validation,
        callbacks=[kr.callbacks.MetricAverageCallback()],
        verbose=1 if kr.rank() == 0 else 0,
    )
    ```
    """

    @takes_horovods("device")
    def __init__(self, *, process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.process_set = process_set
        self._in_fit = False
        # Name of the exchange of the next results; `None` while a rank may
        # evaluate alone.
        self._due: str | None = None
        # Whether this rank had no data of its own, so its state must not
        # count.
        self._has_no_data = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Starts to combine metrics."""
        self._in_fit = True
        self._install()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Stops combining metrics."""
        self._in_fit = False
        self._uninstall()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Notes that the metrics of training come next."""
        self._due = "metrics"

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Averages results, where state cannot be combined."""
        if (
            logs
            and backend.is_graph_program()
            and not is_alone(self.process_set)
        ):
            averages = _averages(logs, self.process_set, "metrics/logs")
            logs.update((key, float(each)) for key, each in averages.items())

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Notes that the metrics of validation come next."""
        self._due = "evaluation/metrics"
        if not self._in_fit:
            self._install()

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Stops combining metrics if it was `evaluate` that began it."""
        if not self._in_fit:
            self._uninstall()

    def _install(self) -> None:
        """Replaces the method by which Keras computes the results of an epoch.

        A callback sees results only, and callbacks before it see them first.
        The state of the metrics exists until Keras computes the results, which
        it does once after each pass over the data and nowhere else.
        """
        if is_alone(self.process_set) or backend.is_graph_program():
            return
        self._uninstall()
        model = self.model
        metric_state.watch(model)
        results: Callable[[Logs], Logs] = getattr(
            model, compat.METRICS_RESULT_METHOD
        )

        def results_of_all_ranks(logs: Logs) -> Logs:
            # Another callback may evaluate the model on one rank alone.
            name, self._due = self._due, None
            if name is None:
                return results(logs)
            if self._has_no_data:
                model.reset_metrics()
            return _results_of_all_ranks(
                model, results, logs, self.process_set, name
            )

        setattr(model, compat.METRICS_RESULT_METHOD, results_of_all_ranks)

    def _uninstall(self) -> None:
        if compat.METRICS_RESULT_METHOD in vars(self.model):
            delattr(self.model, compat.METRICS_RESULT_METHOD)


def _results_of_all_ranks(
    model: Model,
    results: Callable[[Logs], Logs],
    logs: Logs,
    process_set: ProcessSet,
    name: str,
) -> Logs:
    metric_state.combine(compat.metrics_variables(model), process_set, name)
    combined = results(logs)
    if combined is logs and isinstance(logs, dict) and logs:
        return _averages(logs, process_set, f"{name}/logs")
    return combined


def _averages(logs: Logs, process_set: ProcessSet, name: str) -> Logs:
    """Returns the averages of results of ranks."""
    keys = sorted(logs)
    averages = arrays.allreduce_group(
        [np.asarray(backend.as_array(logs[key]), np.float64) for key in keys],
        reduce_ops.Average,
        name=name,
        process_set=process_set,
    )
    return dict(zip(keys, averages, strict=True))
