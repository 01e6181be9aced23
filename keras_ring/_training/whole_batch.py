"""Makes the parts of a batch that ranks train on count as that batch.

Of a batch of `B` rows, rank `r` of `n` has `b_r`, of which some may have none:
the last batch of an epoch is as small as it likes. Whatever is a mean over the
rows is, of the whole batch,

    L = sum_r (b_r / B) L_r = mean_r f_r L_r,    f_r = n b_r / B

so the gradients of each rank count with the factor `f_r` in the average. What
does not depend on the rows, as the penalty of a regularizer, stays what it is:
the factors of all ranks are `n` together.

A tape adds up what it differentiates. A loss with a number for each row is so a
sum over the rows, of which those of all ranks are the mean of `n` times each.

A loss that is divided by something else, `W_r` on rank `r` (the number of its
tokens that are not masked, the sum of its weights), and one that is a sum, get
another factor before:

    c_r = (W_r / sum_q W_q) / (b_r / B)  and  c_r = B / b_r,

of loss and gradient, so that what metrics make of the loss of each rank,
weighted by its rows, is that of the whole batch, too. A rank without rows has
the loss 0.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from keras_ring._keras.chance import WHOLE, Rows
from keras_ring._keras.patching import patch_once
from keras_ring._ops import reductions, xla
from keras_ring._ops.names import unique_names, variable_path
from keras_ring._ops.sparse import map_gradient
from keras_ring._runtime.process_sets import ProcessSet
from keras_ring._training.batch_rows import num_rows, rows_between, static_rows
from keras_ring._typing import (
    Gradient,
    Structure,
    Tensor,
    Variable,
)
from keras_ring.core import reduce_ops

Updates = list[tuple[Variable, Gradient]]


class Step:
    """One step of training, in which this rank has some rows of a batch.

    Args:
        process_set: Whose ranks have the others.
        captured: A list that gets the updates, as pairs of variables and their
            gradients, which are then not made. Defaults to `None`: they are.
    """

    # Whether other ranks have rows of the batch.
    is_part = True
    # Whether all have as many.
    is_even = True
    # How many this rank has, and which share of all rows that is: scalars of
    # float64, where they are not even.
    _rows: Tensor = None
    _share: Tensor = None

    def __init__(
        self, process_set: ProcessSet, captured: Updates | None = None
    ) -> None:
        self.process_set = process_set
        self.captured = captured
        # Whether a tape has scaled the loss.
        self.is_scaled = False
        # Tensors of this rank's rows, with those of all rows: in each graph,
        # for in that of a loop there may be others.
        self._wholes: dict[tuple[int, int], tuple[Structure, Structure]] = {}

    def rows_of(self, batch: Structure) -> Structure:
        """Returns the rows of this rank, of what was read."""
        return batch

    def place(self) -> Rows:
        """Returns which rows of the batch this rank has."""
        return WHOLE

    def place_for_xla(self) -> tuple[Any, Any]:
        """Returns its first row, and how many all have, as XLA can know them.

        Raises:
            NotImplementedError: If only the other ranks know.
        """
        raise NotImplementedError(
            "How many rows the batches of other ranks have is known only when "
            "they are read, and XLA compiles for fixed shapes. Compile the "
            "model with `jit_compile=False`."
        )

    def whole_of(self, leaf: Structure) -> Structure:
        """Returns a tensor of all rows whose part is known; else `None`.

        Args:
            leaf: A tensor of this rank's rows.
        """
        _, whole = self._wholes.get(_key(leaf), (None, None))
        return whole

    def note_whole(self, leaf: Structure, whole: Structure) -> None:
        """Notes a tensor of all rows, beside that of this rank's rows."""
        # That of the rank is kept, so that no other one has its `id`.
        self._wholes[_key(leaf)] = leaf, whole

    def static_rows_with(self, own: int | None) -> int | None:
        """Returns how many rows all have, where the shape of a part tells.

        Args:
            own: Integer, the rows of the part, `None` if they are not known.
        """
        del own
        return None

    def share(self) -> Tensor:
        """Returns `b_r / B`, a scalar of float64."""
        if self.is_even:
            return tf.constant(1.0 / self.process_set.size(), tf.float64)
        return self._share

    def factor(self) -> Tensor:
        """Returns `f_r`, a scalar of float64."""
        if self.is_even:
            return tf.constant(1.0, tf.float64)
        return self.process_set.size() * self._share

    def own_rows(self) -> Any:
        """Returns how many rows this rank has: an integer, or a scalar."""
        raise NotImplementedError

    def factor_of(self, target: Tensor) -> Tensor | None:
        """Returns what counts of the gradients of a target of a tape.

        Args:
            target: A loss, which is a mean over the rows; or one for each row.

        Returns:
            A scalar of float64, or `None` where it is 1.
        """
        mean = None if self.is_even else self.factor()
        if target.shape.rank in (0, None):
            return mean
        total = tf.constant(float(self.process_set.size()), tf.float64)
        rows, own = target.shape[0], self.own_rows()
        if rows is not None and isinstance(own, int):
            return total if rows == own else mean
        has_rows = tf.equal(
            tf.cast(tf.shape(target)[0], tf.int64), tf.cast(own, tf.int64)
        )
        return tf.where(has_rows, total, self.factor())

    def scale(self, gradients: list[Gradient]) -> list[Gradient]:
        """Returns gradients as they count, if their loss did not count so.

        It does where a tape has differentiated it (`_counted`): before layers
        that exchange something with other ranks on the way back.
        """
        if self.is_even or self.is_scaled:
            return gradients
        return [
            None
            if gradient is None
            else map_gradient(
                lambda values: values * tf.cast(self.factor(), values.dtype),
                gradient,
            )
            for gradient in gradients
        ]

    def shared_loss(
        self, loss: Tensor, divisor: Callable[[], Tensor] | None, of_data: bool
    ) -> Tensor:
        """Returns a loss of Keras as its part of that of the whole batch.

        Args:
            loss: A scalar.
            divisor: Returns what it was divided by, a scalar. `None` for a
                sum.
            of_data: Boolean, whether that is told by this rank's data, and not
                by the number of its rows alone.
        """
        factor = self._correction(divisor, of_data)
        if factor is not None:
            loss *= tf.stop_gradient(tf.cast(factor, loss.dtype))
        if self.is_even:
            return loss
        return tf.where(self._rows > 0, loss, tf.zeros_like(loss))

    def _correction(
        self, divisor: Callable[[], Tensor] | None, of_data: bool
    ) -> Tensor | None:
        """Returns `c_r`, or `None` where it is 1."""
        share = self.share()
        if divisor is None:
            return tf.math.divide_no_nan(tf.ones_like(share), share)
        if not of_data:
            return None
        weight = tf.cast(divisor(), tf.float64)
        (name,) = unique_names("whole_batch", ["loss_weight"])
        total = reductions.allreduce(
            weight, reduce_ops.Sum, name=name, process_set=self.process_set
        )
        part = tf.math.divide_no_nan(weight, total)
        return tf.math.divide_no_nan(part, share)


class PartStep(Step):
    """A step on this rank's part of a batch that all ranks have read.

    Rank `r` of `n` has rows `r B // n` to `(r + 1) B // n`, so parts differ by
    a row at most. Nothing is sent to know how many others have.

    Args:
        batch: The whole batch.
        process_set: Whose ranks have the other parts.
        captured: As for `Step`.
        weights: Integers, one for each rank, by which the rows are divided.
            Defaults to equal parts.
    """

    def __init__(
        self,
        batch: Structure,
        process_set: ProcessSet,
        captured: Updates | None = None,
        weights: Sequence[int] | None = None,
    ) -> None:
        super().__init__(process_set, captured)
        size, rank = process_set.size(), process_set.rank()
        weights = weights or [1] * size
        before, total = sum(weights[:rank]), sum(weights)
        whole = static_rows(batch)
        if whole is None:
            whole = tf.cast(num_rows(batch), tf.int64)
        self._whole = whole
        self._begin = whole * before // total
        self._end = whole * (before + weights[rank]) // total
        equal = all(weight == weights[0] for weight in weights)
        self.is_even = isinstance(whole, int) and equal and whole % size == 0
        if not self.is_even:
            self._rows = tf.cast(self.own_rows(), tf.float64)
            self._share = tf.math.divide_no_nan(
                self._rows, tf.cast(whole, tf.float64)
            )

    def rows_of(self, batch: Structure) -> Structure:
        """Returns this rank's part of the batch."""
        # Where it was read: what others have need not be copied to a device.
        with tf.device(None if xla.is_tracing() else "CPU"):
            return tf.nest.map_structure(self._part_of, batch)

    def own_rows(self) -> Any:
        """Returns how many rows this rank has: an integer, or a scalar."""
        return self._end - self._begin

    def place(self) -> Rows:
        """Returns which rows of the batch this rank has."""
        return Rows(self._begin, self.own_rows())

    def place_for_xla(self) -> tuple[Any, Any]:
        """Returns its first row, and how many all have."""
        return self._begin, self._whole

    def static_rows_with(self, own: int | None) -> int | None:
        """Returns how many rows all have, where the shape of a part tells."""
        if own is None or not isinstance(self._whole, int):
            return None
        return self._whole if own == self.own_rows() else None

    def _part_of(self, leaf: Structure) -> Structure:
        part = rows_between(leaf, self._begin, self._end)
        # All ranks have read all of it.
        self.note_whole(part, leaf)
        return part


class OwnBatchStep(Step):
    """A step on a batch of this rank's own, beside those of other ranks.

    Args:
        batch: The batch.
        process_set: Whose ranks have the others.
    """

    is_even = False

    def __init__(self, batch: Structure, process_set: ProcessSet) -> None:
        super().__init__(process_set)
        # At the beginning: it is there when the loss is.
        self._rows = tf.cast(num_rows(batch), tf.float64)
        (name,) = unique_names("whole_batch", ["rows"])
        whole = reductions.allreduce(
            self._rows, reduce_ops.Sum, name=name, process_set=process_set
        )
        self._share = tf.math.divide_no_nan(self._rows, whole)

    def own_rows(self) -> Any:
        """Returns how many rows this rank has, a scalar."""
        return self._rows


class WholeStep(Step):
    """One step on a whole batch, to compare with: of this rank alone."""

    is_part = False

    def shared_loss(
        self, loss: Tensor, divisor: Callable[[], Tensor] | None, of_data: bool
    ) -> Tensor:
        """Returns the loss."""
        del divisor, of_data
        return loss


_current: contextvars.ContextVar[Step | None] = contextvars.ContextVar(
    "keras_ring_step", default=None
)


def current() -> Step | None:
    """Returns the step that the caller runs in, or is traced in."""
    return _current.get()


@contextlib.contextmanager
def step(found: Step) -> Iterator[None]:
    """Has what is computed inside be of one step."""
    token = _current.set(found)
    try:
        yield
    finally:
        _current.reset(token)


def install() -> None:
    """Has tapes of TensorFlow scale what they differentiate in a step."""
    patch_once(tf.GradientTape, "gradient", _counted, "rows of a rank count")


def _counted(gradient: Callable[..., Structure]) -> Callable[..., Structure]:
    @functools.wraps(gradient)
    def counted(
        self: tf.GradientTape,
        target: Structure,
        sources: Structure,
        output_gradients: Structure = None,
        *args: Any,
        **kwargs: Any,
    ) -> Structure:
        step = _current.get()
        # By a tensor, it is a part of the loss, as a penalty on gradients.
        of_weights = all(
            variable_path(source) is not None
            for source in tf.nest.flatten(sources)
        )
        if (
            step is not None
            and step.is_part
            and of_weights
            and output_gradients is None
        ):
            step.is_scaled = True
            output_gradients = tf.nest.map_structure(
                functools.partial(_as_it_counts, step), target
            )
        return gradient(
            self, target, sources, output_gradients, *args, **kwargs
        )

    return counted


def _as_it_counts(step: Step, target: Tensor) -> Tensor:
    """Returns what a tape multiplies the gradients of a target by."""
    factor = step.factor_of(target)
    if factor is None:
        return None
    return tf.fill(tf.shape(target), tf.cast(factor, target.dtype))


def _key(leaf: Structure) -> tuple[int, int]:
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return id(leaf), id(graph)
