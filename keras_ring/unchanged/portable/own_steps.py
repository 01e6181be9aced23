"""Steps of the program's own, which are tried before they are believed.

A `train_step` may do anything with a batch. So, on the first batch of each
epoch, it is run on the whole batch and on parts of it, with constants in place
of random numbers, and without updates. The average over ranks of the gradients
of parts must be the gradient of the whole; the same holds for what metrics have
counted, added up, and for what the model keeps without training it. The model
is left as it was.

Parts with unequal numbers of rows are tried as well. If they do not come to the
same, because a loss is not computed by `compute_loss` and so has no factor for
its rows (`parts`), batches that cannot be divided evenly are trained on as a
whole by each rank.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy.typing as npt

from keras_ring._typing import Logs, Model, Structure, Variable
from keras_ring.core import arrays, topology
from keras_ring.core.notices import say
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import global_process_set
from keras_ring.core.reduce_ops import Average, Sum
from keras_ring.errors import AutoError, KerasRingError
from keras_ring.keras import scope
from keras_ring.keras.agreement.next_batch import on_next_call
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.lanes import compat, constant_random, keras3_models
from keras_ring.keras.model import seeds
from keras_ring.unchanged import (
    data_passes,
    random_state,
    script,
    tolerances,
)
from keras_ring.unchanged.portable import all_rows, parts
from keras_ring.unchanged.portable.parts import PartStep, Step, WholeStep

_TRIED = "_keras_ring_tried_step"
_ADVICE = (
    "It may sum over rows, compare them with each other, make rows of its own, "
    "as many as a whole batch has, or clip gradients. Take means over rows, "
    "and as many as are given (`keras.ops.shape(x)[0]`); a loss of the program "
    "that compares rows may be given to `compile(loss=...)`."
)


class Tried:
    """The outcome of trying the step of a model so far."""

    # Whether it is right for parts with unequal numbers of rows.
    takes_unequal = True
    is_said = False


class _UnequalPart(PartStep):
    """A part of a batch that divides evenly, in which rank 0 has a row more."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.begin += topology.rank() > 0
        self.end += topology.rank() < topology.size() - 1


class _Effects(NamedTuple):
    """The effects of a step that has updated nothing.

    Args:
        gradients: List of pairs of the path of a variable and its gradient.
        counts: Dictionary of the sums of metrics, by path.
        state: Dictionary of what the model keeps and does not train, by path.
        names: Set of the names of the values that the step has returned.
    """

    gradients: list[tuple[str, npt.NDArray[Any]]]
    counts: dict[str, npt.NDArray[Any]]
    state: dict[str, npt.NDArray[Any]]
    names: set[str]


def has_own(model: Model) -> bool:
    """Returns whether a model has a step, or `compute_metrics`, of its own.

    Args:
        model: A `keras.Model`.
    """
    return keras3_models.has_own_step(model) or keras3_models.has_own_metrics(
        model
    )


def prepare(model: Model, around: Callable[..., Any]) -> None:
    """Makes the own step of a model one of a rank. Once for each model.

    Args:
        model: A `keras.Model`.
        around: Function that takes a `train_step` and returns the one to run.
    """
    if not has_own(model) or hasattr(model, _TRIED):
        return
    object.__setattr__(model, _TRIED, Tried())
    if keras3_models.has_own_step(model):
        keras3_models.replace_train_step(model, around)


def is_for_all(model: Model, batch: Structure) -> bool:
    """Returns whether each rank trains on all rows of a batch.

    Args:
        model: A `keras.Model`.
        batch: The whole batch.
    """
    tried: Tried | None = getattr(model, _TRIED, None)
    rows, size = parts.num_rows(batch), topology.size()
    if tried is None or rows % size == 0:
        return False
    return rows < size or not tried.takes_unequal


def arrange(model: Model, then: Callable[[], None]) -> None:
    """Makes the step be tried on the next batch.

    All ranks must call this before a batch of training.

    Args:
        model: A `keras.Model`, whose step is its own.
        then: Function that is called after that, and before the batch is
            trained on.
    """

    def try_and_train(train: Run, iterator: Iterator[Structure]) -> Logs:
        batches, iterator = backend.read_ahead(iterator, 1)
        if batches:
            _try(model, batches[0])
        then()
        return train(iterator)

    on_next_call(model, try_and_train)


def _try(model: Model, batch: Structure) -> None:
    tried: Tried = getattr(model, _TRIED)
    size = topology.size()
    rows = parts.part_of(model, batch).rows
    even = rows - rows % size
    if even == 0:
        return
    batch = backend.map_structure(lambda leaf: parts.first(leaf, even), batch)
    whole = _run(model, batch, WholeStep())
    _require_metrics(model, whole)
    if problem := _difference(whole, _run_part(model, batch, PartStep(even))):
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, whose step is its "
            "own, and on parts of a batch it does not do what it does on the "
            f"whole: {problem}. {_ADVICE}"
        )
    unequal = "each rank has one row" if even == size else None
    if unequal is None:
        part = _run_part(model, batch, _UnequalPart(even))
        unequal = _difference(whole, part)
    tried.takes_unequal = unequal is None and tried.takes_unequal
    if tried.is_said:
        return
    tried.is_said = True
    text = ""
    if not tried.takes_unequal:
        text = (
            "; batches that cannot be divided evenly are trained on as a whole "
            "by each rank"
        )
    say(
        f"the step of model {model.name!r} does on parts of a batch what it "
        f"does on the whole (tried on the first batch of each epoch){text}",
        location=script.location(),
    )


def _run_part(model: Model, batch: Structure, part: PartStep) -> _Effects:
    try:
        return _run(model, part.rows_of(batch), part)
    except KerasRingError:
        raise
    except Exception as error:
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, whose step is its "
            "own and runs on a batch as it is, but not on the rows of a rank: "
            f"{type(error).__name__}: {error}. {_ADVICE}"
        ) from error


def _run(model: Model, batch: Structure, step: Step) -> _Effects:
    """Runs a step without updates, and leaves the model as it was."""
    captured: list[tuple[Variable, Any]] = []
    step.captured = captured
    train_step = functools.partial(type(model).train_step, model)
    with (
        _attributes_kept(model),
        _generators_kept(),
        data_passes.running(None),
        scope.inside(part=step),
        constant_random.without_chance(),
    ):
        logs, after = backend.tried_step(model, train_step, batch)
    own, _ = all_rows.variables_of_ranks(model)
    return _Effects(
        [
            (str(backend.variable_path(variable)), backend.as_array(gradient))
            for variable, gradient in captured
            if gradient is not None
        ],
        {
            variable.path: after[id(variable)]
            for variable in own
            if compat.aggregation(variable) == "sum"
        },
        {
            variable.path: after[id(variable)]
            for variable in model.non_trainable_variables
            if not seeds.is_state(variable)
        },
        set(logs),
    )


@contextlib.contextmanager
def _attributes_kept(model: Model) -> Iterator[None]:
    """Undoes what the context changes of plain attributes.

    A step may count its calls, for example, to do something every few of them.
    """
    owners = [model, *model._flatten_layers(include_self=False)]
    before = [
        {key: value for key, value in vars(owner).items() if _is_plain(value)}
        for owner in owners
    ]
    try:
        yield
    finally:
        for owner, attributes in zip(owners, before, strict=True):
            for key, value in attributes.items():
                if vars(owner).get(key) is not value:
                    # Bypasses its own `__setattr__`, which tracks attributes.
                    object.__setattr__(owner, key, value)


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """Gives the program's generators their state from before the context.

    Parts of unequal sizes draw different numbers of numbers.
    """
    with backend.outside_of_traces():
        before = random_state.get()
    try:
        yield
    finally:
        with backend.outside_of_traces():
            random_state.set_to(before)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _require_metrics(model: Model, whole: _Effects) -> None:
    """Raises an error for values that are no results of metrics."""
    names = {metric.name for metric in model.metrics}
    known = set(model.get_metrics_result()) | names
    if not whole.names <= known:
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, whose step returns "
            f"{sorted(whole.names - known)}, which are values of a rank's rows "
            "and no results of metrics. Count them with metrics "
            "(`keras.metrics.Mean`) that the property `metrics` of the model "
            "returns, and return their results."
        )


def _difference(whole: _Effects, part: _Effects) -> str | None:
    """Returns how ranks together differ from the whole, or `None`."""
    found = _different_gradients(whole, part)
    for what, expected, own, op in (
        ("what a metric counts in", whole.counts, part.counts, Sum),
        ("afterwards", whole.state, part.state, None),
    ):
        for path, value in expected.items():
            of_ranks = own[path]
            if op is not None:
                of_ranks = arrays.allreduce(
                    of_ranks,
                    op,
                    name="auto/own_step/counts",
                    process_set=global_process_set,
                )
            if found is None and not tolerances.are_close(value, of_ranks):
                found = f"{what} {path!r} is another value"
    of_all = allgather_object(found, "auto/own_step")
    return next((each for each in of_all if each is not None), None)


def _different_gradients(whole: _Effects, part: _Effects) -> str | None:
    paths = [path for path, _ in whole.gradients]
    if paths != [path for path, _ in part.gradients]:
        # The same on all ranks: each has the same program and the same batch.
        return (
            f"it updates {len(part.gradients)} variables and not "
            f"{len(paths)}, or others"
        )
    overall = max(
        (tolerances.largest(gradient) for _, gradient in whole.gradients),
        default=0.0,
    )
    found = None
    pairs = zip(whole.gradients, part.gradients, strict=True)
    for (path, expected), (_, own) in pairs:
        average = arrays.allreduce(
            own,
            Average,
            name="auto/own_step/gradients",
            process_set=global_process_set,
        )
        # Keras computes in float32 on these frameworks, whatever the type.
        of_own, of_all = tolerances.GRADIENTS[min(expected.itemsize, 4)]
        bound = of_own * tolerances.largest(expected) + of_all * overall
        far = tolerances.largest(expected - average)
        if found is None and not far <= bound:
            found = f"the gradient of {path!r} is up to {far:.3g} away"
    return found
