"""Finds out whether training on parts of a batch is training on the batch.

It is, of what Keras itself computes: losses that are means over the rows,
layers that look at each row alone. Of a step or layer of the program's own
nobody knows: a loss may be a sum, or compare each row with all others. So all
ranks put the parts of a batch together and compare the gradients of the whole
with what the parts give: of the first batch, and ever more rarely of later ones
(`occasions`), as what a step does may depend on its data.

Both are computed eagerly, on the weights after the step, with numbers in place
of random ones that each row has of its own, or else constants, and without a
trace in the state of the model.

So is what the step keeps (`kept_state`), which is looked at before the first
step as well: that is not to keep something else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from keras_ring._agreement.next_batch import (
    TrainFunction,
    iterator_of,
    next_of,
)
from keras_ring._auto import (
    counted,
    kept_state,
    occasions,
    passes,
    returned,
    same_data,
    script,
    step_comparison,
)
from keras_ring._auto.advice import IN_MODEL, REASONS, summary
from keras_ring._auto.passes import Pass
from keras_ring._auto.said import say
from keras_ring._auto.step_comparison import Comparison
from keras_ring._keras import compat
from keras_ring._keras.steps import steps
from keras_ring._runtime import topology
from keras_ring._runtime.process_sets import global_process_set
from keras_ring._training import batch_rows
from keras_ring._training.whole_batch import WholeStep
from keras_ring._typing import Model, Structure
from keras_ring.errors import AutoError, KerasRingError

# How many steps there were of a model whose steps are checked.
_COUNTED = "_keras_ring_steps_to_check"
# What a step may raise that has other rows than it was made for.
_OF_SHAPES = (
    IndexError,
    TypeError,
    ValueError,
    tf.errors.InvalidArgumentError,
)


class _Checked:
    """Stands in for the training function of a model, and checks its steps.

    Args:
        model: A `keras.Model` in `fit`.
        running: The pass of it.
    """

    def __init__(self, model: Model, running: Pass | None) -> None:
        self._model = model
        self._running = running
        self.train: TrainFunction = model.train_function

    def __call__(self, iterator: Iterator[Structure]) -> Any:
        """Trains as many steps as Keras does at a time."""
        is_own = passes.current() is self._running
        if not is_own or not isinstance(iterator, tf.data.Iterator):
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
        """Has Keras trace the step by what is known now."""
        model = self._model
        model.make_train_function(force=True)
        self.train, model.train_function = model.train_function, self

    def _train(self, iterator: Iterator[Structure]) -> Any:
        """Trains, and stays where it is if what it calls was for one call."""
        before = self._model.train_function
        logs = self.train(iterator)
        after = self._model.train_function
        if after is not before:
            self.train, self._model.train_function = after, before
        return logs


def arrange(model: Model) -> None:
    """Has the steps of a model checked, if need be, in this `fit`.

    Args:
        model: A `keras.Model` in `fit`, whose ranks have parts of a batch.
    """
    if _is_of_unknown(model):
        model.train_function = _Checked(model, passes.current())


def end(model: Model) -> None:
    """Leaves a model without what `arrange` has put in."""
    train = getattr(model, "train_function", None)
    if isinstance(train, _Checked):
        model.train_function = train.train


def look_at_single(model: Model, batch: Structure) -> bool:
    """Looks at what a step keeps, before it is trained on a batch.

    Args:
        model: A `keras.Model`, which is built.
        batch: The whole batch.

    Returns:
        Whether the step has to be traced again.
    """
    if not _is_of_unknown(model) or not _is_state_due(model):
        return False
    return _find_state(model, batch)


def check_single(model: Model, batch: Structure) -> None:
    """Checks the step of a model on a batch, if that is due.

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
    """Requires what the steps of a model keep to be the same on all ranks.

    Args:
        model: A `keras.Model`.
        when: String, for the error, as "After epoch 3".
    """
    if _is_of_unknown(model):
        kept_state.of(model).require_same(when)


@contextlib.contextmanager
def refusing_parts(model: Model, batch: Structure) -> Iterator[None]:
    """Has a step that runs on a batch, and not on a part of it, say so.

    Args:
        model: A `keras.Model`, whose step runs inside.
        batch: The whole batch.
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
            for leaf in tf.nest.flatten(batch)
            if hasattr(leaf, "shape")
        ]
        raise AutoError(
            f"{script.line()} trains model {model.name!r}, whose step runs on "
            "a batch as it is and not on the rows of a rank: "
            f"{type(error).__name__}: {summary(error)}. The first axis of all "
            "that a batch has is taken for its rows, which are divided "
            f"between ranks; received shapes {shapes}. Make it the axis of "
            "the examples (`np.stack([a, b], axis=1)`), or give what is "
            "stacked as a tuple, `(a, b)`."
        ) from error


def _runs_on_whole(model: Model, batch: Structure) -> bool:
    """Whether the step runs on a whole batch, on this rank alone."""
    with passes.running(None):
        try:
            whole = WholeStep(global_process_set, [])
            step_comparison.run(model, batch, whole, False)
        except Exception:
            return False
    return True


def _is_due(model: Model, later: int) -> bool:
    """Whether a step is to be checked.

    Args:
        model: A `keras.Model`.
        later: Integer, how many steps there are before it, of the next ones.
    """
    return occasions.is_one(_number(model) + later)


def _number(model: Model) -> int:
    """Returns the number of the next step."""
    return int(vars(model).get(_COUNTED, 0)) + 1


def _count(model: Model, steps: int) -> None:
    count = _number(model) - 1 + steps
    # Past the model's own `__setattr__`, which tracks what is set.
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
    """Finds out what a step keeps, before it is trained on a batch.

    Args:
        model: A `keras.Model`.
        batch: The whole batch.

    Returns:
        Whether it has to be traced again.
    """
    kept = kept_state.of(model)
    if kept.is_searched:
        kept.require_same(f"After step {_number(model) - 1:,}")
    if not compat.is_built(model):
        step_comparison.build_and_share(model, batch)
    batch = same_data.of_rank_0(batch)
    if int(batch_rows.num_rows(batch)) < topology.size():
        return False
    before, kept.is_searched = _traced_for(model), True
    compared = Comparison(model, batch, _number(model))
    problem = None
    with passes.running(None):
        for by_rows in (True, False):
            try:
                whole = compared.on_whole(by_rows)
                part = compared.on_part(by_rows, whole.state)
                # Where it has to be an error, it is one after the step.
                compared.problem_of_metrics(whole, part, is_first=True)
                problem = compared.narrow(whole, part)
                if problem is None and kept.is_undecided:
                    # As it goes on, of which it may tell more.
                    begin = whole.state
                    whole = compared.on_whole(by_rows, begin)
                    part = compared.on_part(by_rows, whole.state, begin)
                    problem = compared.narrow(whole, part)
            except AutoError:
                raise
            except Exception:
                # That is said after the step.
                return False
            if problem is None:
                kept.say_ways()
                return _traced_for(model) != before
        if not compared.repeats(compared.on_whole(by_rows), by_rows):
            return False
    raise AutoError(problem)


def _traced_for(model: Model) -> object:
    """Returns what a step has to be traced again for, if it changes."""
    return kept_state.of(model).choices(), counted.num_by_share(model)


def _check(model: Model, batch: Structure) -> bool:
    """Compares a step on parts of a batch with that on the whole.

    Args:
        model: A `keras.Model`.
        batch: The whole batch, which it was trained on.

    Returns:
        Whether the step has to be traced again.
    """
    place = script.place()
    what = f"the step of model {model.name!r}{place}"
    batch = same_data.of_rank_0(batch)
    if int(batch_rows.num_rows(batch)) < topology.size():
        # There is no part for each.
        return False
    kept = kept_state.of(model)
    before = kept.choices()
    compared = Comparison(model, batch, _number(model))
    value = problem = None
    with passes.running(None):
        # Numbers for each row are those of the whole only in the order of its
        # rows; and constants may be where a function has no derivative.
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
                    place=place,
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
                place=place,
            )
            return kept.choices() != before
        repeats = compared.repeats(whole, by_rows)
    if not repeats:
        say(
            f"WARNING: {what} is not checked, for it draws random numbers "
            "that are not TensorFlow's. Its loss is taken to be a mean over "
            "the rows of a batch",
            place=place,
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
