"""Losses and metrics of the program's own, computed from all rows of a batch.

A function that a model is compiled with gets `y_true`, `y_pred` and weights
alone. It is not known what it computes: it may compare rows, or divide by a
count of some. So in a step on parts of a batch, each rank calls it with the
rows of all ranks, which are small beside the outputs of layers. Its value, and
the gradient with respect to the rank's own rows, are then those of one process.

`compute_metrics` of the program's own is called in the same way. A metric that
is updated so has counted the same on all ranks, and is not added up over them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Metric, Model, Structure, Tensor, Variable
from keras_ring.errors import AutoError
from keras_ring.keras import scope
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, events, hooks, keras
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.optimizer import whole_batch, whole_rows
from keras_ring.keras.optimizer.whole_batch import Step, WholeStep
from keras_ring.unchanged import script

_PURPOSE = "a function of the program's own is computed of all rows"
_COUNTS_ALL = "_keras_ring_counts_all_rows"


def install() -> None:
    """Changes how Keras calls losses and metrics. Once is enough."""
    hooks.subscribe(
        events.LOSS_CALLED, _loss_of_all, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.METRICS_UPDATED,
        _update_metrics,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )


def variables_of_ranks(model: Model) -> tuple[list[Variable], list[Variable]]:
    """Returns the variables of metrics of parts and of whole batches.

    Args:
        model: A `keras.Model`, which was trained on parts of batches.

    Returns:
        A tuple of two lists: the variables in which ranks count their own rows,
        and those in which each rank counts all rows.
    """
    whole = {
        id(variable)
        for metric in metrics_of(model)
        if counts_all(metric)
        for variable in metric.variables
    }
    found: tuple[list[Variable], list[Variable]] = [], []
    for variable in compat.metrics_variables(model):
        found[id(variable) in whole].append(variable)
    return found


def counts_all(metric: Metric) -> bool:
    """Returns whether a metric counts the rows of all ranks on each rank.

    Args:
        metric: A `keras.metrics.Metric`.
    """
    return hasattr(metric, _COUNTS_ALL)


def metrics_of(model: Model) -> list[Metric]:
    """Returns all metrics of a model, including those it was compiled with.

    Args:
        model: A `keras.Model`.
    """
    compiled = getattr(model, compat.COMPILED_METRICS, None)
    found = [*model.metrics, *(getattr(compiled, "metrics", None) or ())]
    return [each for each in found if isinstance(each, keras.metrics.Metric)]


def refuse_no_sum(metric: Metric, problem: str) -> None:
    """Refuses a metric whose state does not add up, but has to.

    Args:
        metric: A metric of the program's own.
        problem: String, why its state does not add up.

    Raises:
        AutoError: If it counts this rank's rows alone.
    """
    if counts_all(metric):
        return
    raise AutoError(
        f"{script.line()} updates metric {metric.name!r} (class "
        f"{type(metric).__name__}) with the rows of one rank, and what the "
        f"ranks have counted does not add up: {problem}. Keep sums and counts, "
        "and make the result of them in `result()`; or give the metric to "
        "`compile(metrics=[...])`, where Keras 3 updates it with all rows; or "
        f"say how the variable is combined: {compat.AGGREGATIONS} for what "
        "is the same on all ranks."
    )


@contextlib.contextmanager
def metrics_of_all(model: Model) -> Iterator[None]:
    """Makes a model's own `compute_metrics` get the rows of all ranks.

    Args:
        model: A `keras.Model`, whose step runs in the context.
    """
    step = whole_batch.current()
    if step is None or not steps.has_own_metrics(model):
        yield
        return
    compute = model.compute_metrics

    @functools.wraps(compute)
    def compute_of_all(*args: Any, **kwargs: Any) -> Any:
        if step.is_part:
            args, kwargs = _of_all_ranks(step, (args, kwargs))
        with _whole(step), _noting(metrics_of(model)):
            return compute(*args, **kwargs)

    with _in_place_of(model, "compute_metrics", compute_of_all):
        yield


def _loss_of_all(
    loss: Callable[..., Tensor],
    y_true: Structure,
    y_pred: Structure,
    sample_weight: Structure,
) -> Tensor:
    given = y_true, y_pred, sample_weight
    step = whole_batch.current()
    if step is None or not step.is_part:
        return loss(*given)
    given = _of_all_ranks(step, given)
    with _whole(step):
        return loss(*given)


def _update_metrics(
    metrics: list[Metric],
    y_true: Structure,
    y_pred: Structure,
    sample_weight: Structure,
) -> None:
    given = y_true, y_pred, sample_weight
    step = whole_batch.current()
    if scope.current().is_of_all_rows:
        for metric in metrics:
            _update(metric, given)
        return
    own = [
        each
        for each in metrics
        if step is not None and not steps.is_by_rows(each)
    ]
    for metric in metrics:
        if metric not in own:
            metric.update_state(y_true, y_pred, sample_weight=sample_weight)
    if step is None or not own:
        return
    if step.is_part:
        given = _of_all_ranks(step, given)
    with _whole(step):
        for metric in own:
            _update(metric, given)


def _update(
    metric: Metric, given: tuple[Structure, Structure, Structure]
) -> None:
    _note(metric)
    y_true, y_pred, sample_weight = given
    metric.update_state(y_true, y_pred, sample_weight=sample_weight)


def _note(metric: Metric) -> None:
    # Bypasses its own `__setattr__`, which tracks attributes.
    object.__setattr__(metric, _COUNTS_ALL, True)


def _of_all_ranks(step: Step, given: Structure) -> Structure:
    """Returns the rows of all ranks, with their masks."""
    whole = whole_rows.of_all_ranks(step, given)
    pairs = zip(backend.flatten(given), backend.flatten(whole), strict=True)
    for own, of_all in pairs:
        mask = steps.mask_of(own)
        if mask is not None:
            steps.set_mask(of_all, whole_rows.of_all_ranks(step, mask))
    return whole


@contextlib.contextmanager
def _whole(step: Step) -> Iterator[None]:
    """Makes the code in the context run on a whole batch, on each rank."""
    with scope.inside(is_of_all_rows=True):
        with whole_batch.step(WholeStep(step.process_set, step.captured)):
            yield


@contextlib.contextmanager
def _noting(metrics: list[Metric]) -> Iterator[None]:
    """Records which metrics are updated in the context, by any caller."""
    with contextlib.ExitStack() as stack:
        for metric in metrics:
            stack.enter_context(
                _in_place_of(metric, "update_state", _noted(metric))
            )
        yield


def _noted(metric: Metric) -> Callable[..., Any]:
    update = metric.update_state

    @functools.wraps(update)
    def note_and_update(*args: Any, **kwargs: Any) -> Any:
        _note(metric)
        return update(*args, **kwargs)

    return note_and_update


@contextlib.contextmanager
def _in_place_of(
    owner: Any, name: str, function: Callable[..., Any]
) -> Iterator[None]:
    """Replaces a method of one object, bypassing its `__setattr__`."""
    own = vars(owner).get(name)
    object.__setattr__(owner, name, function)
    try:
        yield
    finally:
        # Something else may have replaced the function meanwhile.
        if vars(owner).get(name) is function:
            if own is None:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, own)
