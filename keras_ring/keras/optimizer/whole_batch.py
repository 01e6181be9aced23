"""Makes steps on parts of a batch equal to a step on the whole batch.

Of a batch of `B` rows, rank `r` of `n` has `b_r` rows. Some ranks may have
none, because the last batch of an epoch may be small. A mean over the rows of
the whole batch is

    L = sum_r (b_r / B) L_r = mean_r f_r L_r,    f_r = n b_r / B

so the gradients of each rank have the factor `f_r` in the average. Terms that
do not depend on the rows, such as the penalty of a regularizer, are unchanged,
because the factors of all ranks add up to `n`.

A tape adds up the elements of its target. So a loss with one number for each
row is a sum over the rows, and the sum of all ranks is the mean of `n` times
the sum of each rank.

A loss with another divisor, `W_r` on rank `r` (the number of tokens that are
not masked, or the sum of weights), and a loss that is a sum, first get another
factor:

    c_r = (W_r / sum_q W_q) / (b_r / B)  and  c_r = B / b_r,

This is a factor of the loss and of its gradient. So metrics, which weight the
loss of each rank by its rows, have the loss of the whole batch, too. A rank
without rows has the loss 0.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from keras_ring._typing import (
    Gradient,
    Operation,
    Structure,
    Tensor,
    Variable,
)
from keras_ring.core import reduce_ops
from keras_ring.core.process_sets import ProcessSet
from keras_ring.errors import AutoError
from keras_ring.keras import scope
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.deterministic_random import WHOLE, Rows
from keras_ring.keras.lanes.rings import Ring
from keras_ring.tensorflow import (
    reduction_calls,
    reductions,
    topology_ops,
    xla,
)
from keras_ring.tensorflow.batch_rows import (
    num_rows,
    row_count,
    rows_between,
    static_rows,
)
from keras_ring.tensorflow.names import unique_names, variable_path
from keras_ring.tensorflow.sparse import map_gradient

UNEQUAL = (
    "The tensors of a batch have different first dimensions. The first one is "
    "divided between the ranks, so it must be that of the examples in all of "
    "them"
)
"""What is said of a batch that cannot be divided."""

Updates = list[tuple[Variable, Gradient]]


class Step:
    """One step of training, in which this rank has some rows of a batch.

    Args:
        process_set: A `kr.ProcessSet`, whose ranks have the other rows.
        captured: A list that gets pairs of variables and gradients in place of
            updates. Defaults to `None`, which makes the updates.
    """

    # Whether other ranks have rows of the batch.
    is_part = True
    # Whether all ranks have equally many rows.
    is_even = True
    # The number of rows of this rank, and its share of all rows: scalars of
    # float64, if ranks have different numbers of rows.
    _rows: Tensor = None
    _share: Tensor = None

    def __init__(
        self, process_set: ProcessSet, captured: Updates | None = None
    ) -> None:
        self.process_set = process_set
        self.captured = captured
        # Whether a tape has scaled the loss.
        self.is_scaled = False
        # Tensors of this rank's rows with those of all rows, for each graph,
        # because the graph of a loop may have others.
        self._wholes: dict[tuple[int, int], tuple[Structure, Structure]] = {}

    def rows_of(self, batch: Structure) -> Structure:
        """Returns the rows of this rank in a batch."""
        return batch

    def row_range(self) -> Rows:
        """Returns which rows of the batch this rank has."""
        return WHOLE

    def row_range_for_xla(self) -> tuple[Any, Any]:
        """Returns its first row and the number of all rows, as known to XLA.

        Raises:
            NotImplementedError: If only the other ranks know them.
        """
        raise NotImplementedError(
            "How many rows the batches of other ranks have is known only when "
            "they are read, and XLA compiles for fixed shapes. Compile the "
            "model with `jit_compile=False`."
        )

    def whole_of(self, leaf: Structure) -> Structure:
        """Returns the tensor of all rows for a part, or `None` if not known.

        Args:
            leaf: A tensor of this rank's rows.
        """
        _, whole = self._wholes.get(_key(leaf), (None, None))
        return whole

    def note_whole(self, leaf: Structure, whole: Structure) -> None:
        """Records a tensor of all rows for the tensor of this rank's rows."""
        # The part is kept alive, so that no other tensor gets its `id`.
        self._wholes[_key(leaf)] = leaf, whole

    def static_rows_with(self, own: int | None) -> int | None:
        """Returns the number of all rows if the shape of a part has it.

        Args:
            own: Integer, the rows of the part, or `None` if they are not known.
        """
        del own
        return None

    def share(self) -> Tensor:
        """Returns `b_r / B`, a scalar of float64."""
        if self.is_even:
            factor = topology_ops.mean_factor(self.process_set)
            return reduction_calls.as_type(factor, tf.float64)
        return self._share

    def factor(self) -> Tensor:
        """Returns `f_r`, a scalar of float64."""
        if self.is_even:
            return tf.constant(1.0, tf.float64)
        return self._size([self._share]) * self._share

    def _size(self, after: Sequence[Tensor] = ()) -> Tensor:
        """Returns the number of ranks, a scalar of float64."""
        size = topology_ops.size_in_graph(self.process_set, after)
        return reduction_calls.as_type(size, tf.float64)

    def own_rows(self) -> Any:
        """Returns how many rows this rank has: an integer, or a scalar."""
        raise NotImplementedError

    def factor_of(self, target: Tensor) -> Tensor | None:
        """Returns the factor of the gradients of a target of a tape.

        Args:
            target: A loss that is a mean over the rows, or losses by row.

        Returns:
            A scalar of float64, or `None` if it is 1.
        """
        mean = None if self.is_even else self.factor()
        if target.shape.rank in (0, None):
            return mean
        total = self._size()
        rows, own = target.shape[0], self.own_rows()
        if rows is not None and isinstance(own, int):
            return total if rows == own else mean
        has_rows = tf.equal(
            tf.cast(tf.shape(target)[0], tf.int64), tf.cast(own, tf.int64)
        )
        return tf.where(has_rows, total, self.factor())

    def scale(self, gradients: list[Gradient]) -> list[Gradient]:
        """Returns gradients with their factor, unless a tape has applied it.

        A tape does so when it differentiates the loss (`_counted`), before
        layers that communicate with other ranks in the backward pass.
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
        """Returns a loss of Keras as a part of the loss of the whole batch.

        Args:
            loss: A scalar.
            divisor: Function that returns the divisor of the loss, a scalar.
                `None` for a sum.
            of_data: Boolean, whether the divisor depends on this rank's data,
                and not on the number of its rows alone.
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
        """Returns `c_r`, or `None` if it is 1."""
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

    Rank `r` of `n` has rows `r B // n` to `(r + 1) B // n`, so sizes of parts
    differ by one at most. A rank knows the other sizes without communication.

    Args:
        batch: The whole batch.
        process_set: A `kr.ProcessSet`, whose ranks have the other parts.
        captured: As for `Step`.
        weights: Integers, the weight of each rank in the division of the rows.
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
        if weights:
            # Of the ranks there are: for a step that is run once.
            size, rank = process_set.size(), process_set.rank()
            before, own = sum(weights[:rank]), weights[rank]
            total = sum(weights)
        else:
            size = total = topology_ops.size_in_graph(process_set)
            before, own = topology_ops.rank_in_graph(process_set), 1
        whole = static_rows(batch)
        if not isinstance(size, int):
            before, total = tf.cast(before, tf.int64), tf.cast(total, tf.int64)
            whole = None
        if whole is None:
            whole = tf.cast(num_rows(batch), tf.int64)
        self._whole = whole
        self._begin = whole * before // total
        self._end = whole * (before + own) // total
        equal = not weights or len(set(weights)) == 1
        self.is_even = isinstance(whole, int) and equal and whole % size == 0
        if not self.is_even:
            self._rows = tf.cast(self.own_rows(), tf.float64)
            self._share = tf.math.divide_no_nan(
                self._rows, tf.cast(whole, tf.float64)
            )

    def rows_of(self, batch: Structure) -> Structure:
        """Returns this rank's part of the batch."""
        # On the CPU, so that the rows of others are not copied to a device.
        with tf.device(None if xla.is_tracing() else "CPU"):
            return tf.nest.map_structure(self._part_of, batch)

    def own_rows(self) -> Any:
        """Returns how many rows this rank has: an integer, or a scalar."""
        return self._end - self._begin

    def row_range(self) -> Rows:
        """Returns which rows of the batch this rank has."""
        return Rows(self._begin, self.own_rows())

    def row_range_for_xla(self) -> tuple[Any, Any]:
        """Returns its first row and the number of all rows."""
        return self._begin, self._whole

    def static_rows_with(self, own: int | None) -> int | None:
        """Returns the number of all rows if the shape of a part has it."""
        if own is None or not isinstance(self._whole, int):
            return None
        return self._whole if own == self.own_rows() else None

    def _part_of(self, leaf: Structure) -> Structure:
        with tf.control_dependencies(self._required_rows(leaf)):
            part = rows_between(leaf, self._begin, self._end)
        # All ranks have read the whole batch.
        self.note_whole(part, leaf)
        return part

    def _required_rows(self, leaf: Structure) -> list[Operation]:
        """Returns operations that fail if a tensor has other rows.

        Raises:
            AutoError: If that is known already.
        """
        rows = row_count(leaf)
        if rows is None or rows is self._whole:
            return []
        if isinstance(rows, int) and isinstance(self._whole, int):
            if rows == self._whole:
                return []
            raise AutoError(f"{UNEQUAL}: {self._whole} and {rows} rows.")
        if xla.is_tracing():
            # It compiles no checks.
            return []
        return [
            tf.debugging.assert_equal(
                tf.cast(rows, tf.int64),
                tf.cast(self._whole, tf.int64),
                message=f"{UNEQUAL}.",
            )
        ]


class OwnBatchStep(Step):
    """A step on this rank's own batch, while other ranks have others.

    Args:
        batch: The batch.
        process_set: A `kr.ProcessSet`, whose ranks have the other batches.
    """

    is_even = False

    def __init__(self, batch: Structure, process_set: ProcessSet) -> None:
        super().__init__(process_set)
        # Exchanged at once, so that the result is there before the loss.
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
    """A step of this rank alone on a whole batch, for comparison."""

    is_part = False

    def shared_loss(
        self, loss: Tensor, divisor: Callable[[], Tensor] | None, of_data: bool
    ) -> Tensor:
        """Returns the loss."""
        del divisor, of_data
        return loss


def current() -> Step | None:
    """Returns the step that the caller runs in, or is traced in."""
    step: Step | None = scope.current().part
    return step


@contextlib.contextmanager
def step(found: Step) -> Iterator[None]:
    """Sets the current step for the computations inside."""
    with scope.inside(part=found):
        yield


def install() -> None:
    """Makes tapes of TensorFlow scale gradients inside of a step."""
    hooks.subscribe(
        events.GRADIENT_TAKEN,
        _counted,
        ring=Ring.UNCHANGED,
        purpose="rows of a rank count",
    )


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
        step = scope.current().part
        # A gradient by a tensor may be part of a loss, as a gradient penalty.
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
    """Returns output gradients that apply a target's factor, or `None`."""
    factor = step.factor_of(target)
    if factor is None:
        return None
    return tf.fill(tf.shape(target), tf.cast(factor, target.dtype))


def _key(leaf: Structure) -> tuple[int, int]:
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return id(leaf), id(graph)
