"""Steps on a part of a batch, which together make the step on the whole.

Rank `r` of `n` has `b_r` of the `B` rows of a batch. With the mean `L_r` over
its rows,

    L = sum_r (b_r / B) L_r = mean_r f_r L_r,    f_r = n b_r / B

so the gradient of the loss of each rank has the factor `f_r` in the average
over ranks. It is applied where the backward pass begins, before layers that
communicate in it. A metric counts the loss of each rank with its rows, so the
loss itself has no factor. One that is divided by something else, `W_r` (the sum
of weights, or the number of tokens that are not masked), and one that is a sum,
get the factors

    c_r = (W_r / sum_q W_q) / (b_r / B)  and  c_r = B / b_r

first. All ranks have read the whole batch, so each knows `B` and the rows of
the others, and a function that JAX traces for a shape of the batch knows them,
too.

If a batch has fewer rows than there are ranks, some ranks have none. Such a
rank makes the step on the first row, with the factor 0, and its metrics do not
change.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from keras_ring._typing import Gradient, Model, Structure, Tensor, Variable
from keras_ring.core import topology
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError
from keras_ring.keras import scope
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.unchanged import script

_PURPOSE = "a step on parts of a batch is that on the whole"


class WholeStep:
    """A step, or a function, that has all rows of a batch on each rank."""

    is_part = False
    # A list that gets pairs of variables and gradients in place of updates.
    captured: list[tuple[Variable, Gradient]] | None = None

    def shared_loss(
        self, loss: Tensor, divisor: Callable[[], Tensor] | None, of_data: bool
    ) -> Tensor:
        """Returns the loss."""
        del divisor, of_data
        return loss

    def scale(self, gradients: list[Gradient]) -> list[Gradient]:
        """Returns the gradients."""
        return gradients


class PartStep(WholeStep):
    """A step on this rank's part of a batch that all ranks have read.

    Args:
        rows: Integer, the number of rows of the whole batch.
    """

    is_part = True
    # Whether a function that computes the total loss is running.
    computes_loss = False

    def __init__(self, rows: int) -> None:
        rank, size = topology.rank(), topology.size()
        self.rows = rows
        self.begin = rows * rank // size
        self.end = rows * (rank + 1) // size

    @property
    def has_rows(self) -> bool:
        """Tells whether this rank has any rows."""
        return self.end > self.begin

    @property
    def share(self) -> float:
        """The part of all rows that this rank has."""
        return (self.end - self.begin) / self.rows

    @property
    def factor(self) -> float:
        """The factor `f_r` of gradients."""
        return topology.size() * self.share

    def rows_of(self, batch: Structure) -> Structure:
        """Returns the rows of this rank in a batch, or one in their place."""
        return backend.map_structure(self._part_of, batch)

    def shared_loss(
        self, loss: Tensor, divisor: Callable[[], Tensor] | None, of_data: bool
    ) -> Tensor:
        """Returns a loss of Keras as a part of the loss of the whole batch.

        Args:
            loss: A scalar.
            divisor: Function that returns the divisor of the loss, a scalar.
                `None` for a sum.
            of_data: Boolean, whether the divisor depends on the data, and not
                on the number of rows alone.
        """
        if divisor is None:
            return loss / self.share if self.has_rows else loss
        if not of_data:
            return loss
        weight = divisor()
        # `n W_r / sum_q W_q`, where the share of the rows is `f_r / n`.
        of_weight = backend.share_of(
            weight if self.has_rows else weight * 0, global_process_set
        )
        if not self.has_rows:
            return loss
        return loss * backend.cast(of_weight, loss.dtype) / self.factor

    def counted(self, loss: Tensor) -> Tensor:
        """Returns a total loss whose gradient has the factor of this rank."""
        if self.factor == 1.0:
            return loss
        return backend.with_gradient_factor(
            loss, 1.0, lambda _: backend.as_tensor(self.factor)
        )

    def _part_of(self, leaf: Any) -> Any:
        if not _has_rows(leaf):
            return leaf
        return leaf[self.begin : self.end] if self.has_rows else leaf[:1]


Step = WholeStep | PartStep


def install() -> None:
    """Makes the losses of models count by rows in such steps."""
    hooks.subscribe(
        events.LOSS_COMPUTED, _counted, ring=Ring.UNCHANGED, purpose=_PURPOSE
    )


@contextlib.contextmanager
def on_part(model: Model, batch: Structure) -> Iterator[PartStep]:
    """Makes the step in the context one on this rank's part of a batch.

    Args:
        model: The `keras.Model` that trains.
        batch: The whole batch.

    Yields:
        The step.
    """
    step = part_of(model, batch)
    with scope.inside(part=step):
        yield step


def current() -> Step | None:
    """Returns the step that the caller runs in, or is traced in."""
    step: Step | None = scope.current().part
    return step


def num_rows(batch: Structure) -> int:
    """Returns the number of rows of a batch, 0 if nothing in it has any."""
    return next(
        (len(leaf) for leaf in backend.flatten(batch) if _has_rows(leaf)), 0
    )


def first(leaf: Any, count: int) -> Any:
    """Returns the first rows of a tensor in a batch."""
    return leaf[:count] if _has_rows(leaf) else leaf


def part_of(model: Model, batch: Structure) -> PartStep:
    """Returns the step on this rank's part of a batch.

    Args:
        model: The `keras.Model` that trains.
        batch: The whole batch.

    Raises:
        AutoError: If tensors in the batch have different numbers of rows.
    """
    shapes = [
        tuple(each.shape) for each in backend.flatten(batch) if _has_rows(each)
    ]
    rows = num_rows(batch)
    if any(shape[0] != rows for shape in shapes):
        raise AutoError(
            f"{script.line()} trains model {model.name!r} on a batch whose "
            f"tensors have different first dimensions: received shapes "
            f"{shapes}. The first dimension is divided between the ranks, so "
            "it must be that of the examples in all of them."
        )
    return PartStep(rows)


def _counted(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(compute)
    def counted_loss(self: Model, *args: Any, **kwargs: Any) -> Tensor:
        step = current()
        if not isinstance(step, PartStep) or step.computes_loss:
            return compute(self, *args, **kwargs)
        # One function calls another, and a factor is applied once.
        step.computes_loss = True
        try:
            loss = compute(self, *args, **kwargs)
        finally:
            step.computes_loss = False
        return step.counted(loss)

    return counted_loss


def _has_rows(leaf: Any) -> bool:
    return bool(getattr(leaf, "shape", ()))
