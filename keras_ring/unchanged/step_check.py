"""Checks that training on parts of a batch is training on the whole batch.

This is known for what Keras itself computes: its losses are means over the
rows, and its layers compute each row by itself. It is not known for a step or
layer of the program's own: a loss may be a sum, or compare each row with all
others. So ranks compare the gradients of a whole batch with those of its parts:
for the first batch, and ever more rarely for later ones (`comparisons`),
because a step may depend on its data.

Both are computed eagerly, with the weights after the step, and leave the state
of the model unchanged. In place of random numbers, there are numbers by row or
constants.

The state that the step keeps (`kept_state`) is compared in the same way, and
also before the first step, which must not keep other values already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from keras_ring._typing import Model, Structure
from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError, KerasRingError
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import Run
from keras_ring.keras.lanes import compat
from keras_ring.keras.lanes.steps import steps
from keras_ring.keras.optimizer.whole_batch import WholeStep
from keras_ring.tensorflow import batch_rows, op_errors
from keras_ring.tensorflow.dataset_iterators import (
    is_iterator,
    iterator_of,
    next_of,
)
from keras_ring.unchanged import (
    batch_digests,
    comparisons,
    counted,
    data_passes,
    kept_state,
    returned,
    script,
    step_comparison,
)
from keras_ring.unchanged.advice import IN_MODEL, REASONS, summary
from keras_ring.unchanged.data_passes import Pass
from keras_ring.unchanged.step_comparison import Comparison

# An attribute of a model whose steps are checked: the number of its steps.
_COUNTED = "_keras_ring_steps_to_check"
# Errors that a step may raise if it has other rows than it was made for.
_OF_SHAPES = (
    IndexError,
    TypeError,
    ValueError,
    op_errors.InvalidArgument,
)


class _Checked:
    """A replacement for the training function of a model that checks steps.

    Args:
        model: A `keras.Model` in `fit`.
        running: The `Pass` of this `fit`, or `None`.
    """

    def __init__(self, model: Model, running: Pass | None) -> None:
        self._model = model
        self._running = running
        self.train: Run = model.train_function

    def __call__(self, iterator: Iterator[Structure]) -> Any:
        """Trains the steps of one call, and checks one of them if due."""
        is_own = data_passes.current() is self._running
        if not is_own or not is_iterator(iterator):
            return self._train(iterator)
        model = self._model
        at_once = compat.steps_per_execution(model)
        due = [each for each in range(at_once) if _is_due(model, each)]
        is_new = _is_state_due(model)
        batches = next_of(iterator, at_once) if due or is_new else []
        if not batches:
            _count(model, at_once)
            return self._train(iterator)
        batch = batches[min(due[0] if due else 0, len(batches) - 1)]
        with refusing_parts(model, batch):
            if is_new and _find_state(model, batches[0]):
                self._trace_again()
            logs = self._train(iterator_of(batches, iterator))
        if due:
            self._compare(batch, due[0])
        _count(model, len(batches))
        return logs

    def _compare(self, batch: Structure, later: int) -> None:
        number = _number(self._model) + later
        kept_state.of(self._model).require_same(f"After step {number:,}")
        if _check(self._model, batch):
            self._trace_again()

    def _trace_again(self) -> None:
        """Makes Keras trace the step again, with what is known now."""
        model = self._model
        model.make_train_function(force=True)
        self.train, model.train_function = model.train_function, self

    def _train(self, iterator: Iterator[Structure]) -> Any:
        """Trains, and stays in place if the function replaces itself.

        A function of `on_next_call` does so when it is called.
        """
        before = self._model.train_function
        logs = self.train(iterator)
        after = self._model.train_function
        if after is not before:
            self.train, self._model.train_function = after, before
        return logs


def arrange(model: Model) -> None:
    """Makes the steps of a model be checked in this `fit`, if needed.

    Args:
        model: A `keras.Model` in `fit`, of which ranks train on parts.
    """
    if _is_of_unknown(model):
        model.train_function = _Checked(model, data_passes.current())


def end(model: Model) -> None:
    """Removes the replacement that `arrange` has put into a model."""
    train = getattr(model, "train_function", None)
    if isinstance(train, _Checked):
        model.train_function = train.train


def look_at_single(model: Model, batch: Structure) -> bool:
    """Examines the state that a step keeps, before it trains on a batch.

    Args:
        model: A `keras.Model`, which is built.
        batch: The whole batch.

    Returns:
        Boolean, whether the step must be traced again.
    """
    if not _is_of_unknown(model) or not _is_state_due(model):
        return False
    return _find_state(model, batch)


def check_single(model: Model, batch: Structure) -> None:
    """Checks the step of a model on a batch if that is due.

    Args:
        model: A `keras.Model`, which was trained on the batch.
        batch: The whole batch.
    """
    if not _is_of_unknown(model):
        return
    if _is_due(model, 0):
        kept_state.of(model).require_same(f"After step {_number(model):,}")
        if _check(model, batch):
            model.make_train_function(force=True)
    _count(model, 1)


def require_same_state(model: Model, when: str) -> None:
    """Raises an error if the state that steps keep differs between ranks.

    Args:
        model: A `keras.Model`.
        when: String, the time for the error, such as "After epoch 3".
    """
    if _is_of_unknown(model):
        kept_state.of(model).require_same(when)


@contextlib.contextmanager
def refusing_parts(model: Model, batch: Structure) -> Iterator[None]:
    """Explains an error of a step that runs on a batch but not on a part.

    Args:
        model: A `keras.Model`, whose step runs in the context.
        batch: The whole batch.

    Raises:
        AutoError: If the step fails on a part and runs on the whole batch.
    """
    try:
        yield
    except KerasRingError:
        raise
    except _OF_SHAPES as error:
        if not _is_of_unknown(model) or not _runs_on_whole(model, batch):
            raise
        shapes = [
            tuple(leaf.shape)
            for leaf in backend.flatten(batch)
            if hasattr(leaf, "shape")
        ]
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, whose step runs on "
            "a batch as it is and not on the rows of a rank: "
            f"{type(error).__name__}: {summary(error)}. The first axis of all "
            "that a batch has is taken for its rows, which are divided "
            f"between ranks; received shapes {shapes}. Make it the axis of "
            "the examples (`np.stack([a, b], axis=1)`), or give what is "
            "stacked as a tuple, `(a, b)`. If the step makes rows of its own, "
            "as many as the whole batch has, take as many as it is given: "
            "`tf.shape(x)[0]`."
        ) from error


def _runs_on_whole(model: Model, batch: Structure) -> bool:
    """Returns whether the step runs on a whole batch, on this rank alone."""
    with data_passes.running(None):
        try:
            whole = WholeStep(global_process_set, [])
            step_comparison.run(model, batch, whole, False)
        except Exception:
            return False
    return True


def _is_due(model: Model, later: int) -> bool:
    """Returns whether a step is to be checked.

    Args:
        model: A `keras.Model`.
        later: Integer, the number of further steps before it.
    """
    return comparisons.is_due(_number(model) + later)


def _number(model: Model) -> int:
    """Returns the number of the next step."""
    return int(vars(model).get(_COUNTED, 0)) + 1


def _count(model: Model, steps: int) -> None:
    count = _number(model) - 1 + steps
    # Bypasses the model's own `__setattr__`, which tracks attributes.
    object.__setattr__(model, _COUNTED, count)


def _is_of_unknown(model: Model) -> bool:
    return not (
        steps.has_known_losses(model)
        and steps.has_known_layers(model)
        and not steps.is_own_train_step(model)
    )


def _is_state_due(model: Model) -> bool:
    kept = kept_state.of(model)
    return not kept.is_searched or kept.has_told()


def _find_state(model: Model, batch: Structure) -> bool:
    """Finds out which state a step keeps, before it trains on a batch.

    Args:
        model: A `keras.Model`.
        batch: The whole batch.

    Returns:
        Boolean, whether the step must be traced again.

    Raises:
        AutoError: On all ranks, if the state cannot be combined.
    """
    kept = kept_state.of(model)
    if kept.is_searched:
        kept.require_same(f"After step {_number(model) - 1:,}")
    if not compat.is_built(model):
        step_comparison.build_and_share(model, batch)
    batch = batch_digests.of_rank_0(batch)
    if int(batch_rows.num_rows(batch)) < topology.size():
        return False
    before, kept.is_searched = _traced_for(model), True
    compared = Comparison(model, batch, _number(model))
    problem = None
    with data_passes.running(None):
        for by_rows in (True, False):
            try:
                whole = compared.on_whole(by_rows)
                part = compared.on_part(by_rows, whole.state)
                # If metrics do not add up, it is an error after the step.
                compared.problem_of_metrics(whole, part, is_first=True)
                problem = compared.narrow(whole, part)
                if problem is None and kept.is_undecided:
                    # The step is run once more, which may tell more.
                    begin = whole.state
                    whole = compared.on_whole(by_rows, begin)
                    part = compared.on_part(by_rows, whole.state, begin)
                    problem = compared.narrow(whole, part)
            except AutoError:
                raise
            except Exception:
                # The check after the step reports it.
                return False
            if problem is None:
                kept.say_ways()
                return _traced_for(model) != before
        if not compared.repeats(compared.on_whole(by_rows), by_rows):
            return False
    raise AutoError(problem)


def _traced_for(model: Model) -> object:
    """Returns a value that changes if a step must be traced again."""
    return kept_state.of(model).choices(), counted.num_by_share(model)


def _check(model: Model, batch: Structure) -> bool:
    """Compares a step on parts of a batch with the step on the whole.

    Args:
        model: A `keras.Model`.
        batch: The whole batch, which it was trained on.

    Returns:
        Boolean, whether the step must be traced again.

    Raises:
        AutoError: On all ranks, if parts do not make the whole.
    """
    location = script.location()
    what = f"the step of model {model.name!r}{location}"
    batch = batch_digests.of_rank_0(batch)
    if int(batch_rows.num_rows(batch)) < topology.size():
        # There is no part for each rank.
        return False
    kept = kept_state.of(model)
    before = kept.choices()
    compared = Comparison(model, batch, _number(model))
    value = problem = None
    with data_passes.running(None):
        # In place of random numbers, numbers by row or constants. The former
        # are those of the whole batch only if rows keep their order; the latter
        # may be at a point where a function has no derivative.
        for by_rows in (True, False):
            try:
                whole = compared.on_whole(by_rows)
                part = compared.on_part(by_rows, whole.state)
            except AutoError:
                raise
            except Exception as error:
                say(
                    f"{what} is not checked, for it does not run eagerly "
                    f"({type(error).__name__}: {error})",
                    location=location,
                )
                return False
            found = compared.difference(whole, part)
            if found is not None:
                continue
            value = returned.of(model).try_ways(
                (whole.logs, whole.results),
                (part.logs, part.results),
                (compared.rows, compared.own_rows),
                compared.num_bytes,
            )
            if value is not None:
                continue
            problem = compared.problem_of_metrics(
                whole, part, is_first=False
            ) or compared.narrow(whole, part)
            if problem is not None:
                continue
            kept.say_ways()
            say(
                f"{what} is the program's own; on parts of a batch it "
                "gives the gradients of the whole (checked on batches 1, "
                "2, 4 and so on)",
                location=location,
            )
            return kept.choices() != before
        repeats = compared.repeats(whole, by_rows)
    if not repeats:
        say(
            f"WARNING: {what} is not checked, for it draws random numbers "
            "that are not TensorFlow's. Its loss is taken to be a mean over "
            "the rows of a batch",
            location=location,
        )
        return False
    if value is not None:
        raise AutoError(_text_of_value(model, value, compared.number))
    if problem is not None:
        raise AutoError(problem)
    raise AutoError(
        f"The step of model {model.name!r} ({script.line()}) is the program's "
        "own, or has parts that are, and on parts of batch "
        f"{compared.number:,} it does not give the gradients of the whole: "
        f"{found}. {REASONS}"
        f"{kept.advice()}{IN_MODEL}"
    )


def _text_of_value(model: Model, key: str, number: int) -> str:
    return (
        f"The step of model {model.name!r} ({script.line()}) returns "
        f"{key!r}, which is neither a mean nor a sum over the rows of a batch "
        "(a root, a maximum, a norm of gradients): of those of the parts of "
        f"batch {number:,} none can make that of the whole, which the history "
        "and callbacks go by. Give a function of `y_true` and `y_pred` to "
        "`compile(metrics=[...])`, where it is computed of all rows; or return "
        "a mean over the rows, and take the root of it in a callback; or leave "
        "it out of what the step returns."
    )
