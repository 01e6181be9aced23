"""Weights the losses of ranks, so that their mean is that of the whole batch.

A loss that is divided by the number of its tokens, or by the sum of its
weights, is

    L_r = S_r / W_r

on rank r: `S_r` is the sum of the weighted losses of its elements and `W_r` is
the divisor of Keras. If gradients were averaged, ranks with few tokens would
count as much as those with many. The loss of the whole batch is

    L = sum_r S_r / sum_r W_r = mean_r (n W_r / sum_q W_q) L_r

of n ranks. So in the backward pass the gradient of each loss is multiplied by
its factor, and the mean over the ranks is that of the whole batch. This also
holds for a model with several losses, and with regularizers, which have no such
factor. The value of a loss stays that of its rank.

A program that does not set `weighted` gets a warning, once, if its loss is of
this kind.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from keras_ring._typing import Model, Optimizer, Tensor
from keras_ring.core import reduce_ops, topology
from keras_ring.core.process_sets import ProcessSet, shares_nothing
from keras_ring.keras import scope
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.keras.optimizer.reduction import ReductionSettings

_PURPOSE = "a rank's loss counts with the number it was divided by"
_WEIGHTED = "_keras_ring_weighted"
Divisor = Callable[[], Tensor]
SettingsOf = Callable[[Optimizer], ReductionSettings | None]


class Weighting:
    """The losses of one training, weighted over all ranks.

    Args:
        process_set: A `kr.ProcessSet`, whose ranks train.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self.process_set = process_set
        self.has_losses = False

    def shared(
        self, loss: Tensor, divisor: Divisor | None, of_data: bool
    ) -> Tensor:
        """Returns a loss whose gradient has the factor of this rank.

        Args:
            loss: A scalar.
            divisor: Function that returns the divisor of the loss, a scalar.
                `None` for a sum, which is not changed.
            of_data: Boolean, whether the divisor depends on this rank's data,
                and not on the size of its batch alone.
        """
        del of_data
        if divisor is None:
            return loss
        self.has_losses = True
        if shares_nothing(self.process_set):
            return loss
        return backend.with_gradient_factor(
            loss, divisor(), lambda each: factor_of(each, self.process_set)
        )


class OfWholeBatch:
    """The losses of one training on parts of batches (`whole_batch`)."""

    def shared(
        self, loss: Tensor, divisor: Divisor | None, of_data: bool
    ) -> Tensor:
        """Returns the loss as a part of the loss of the whole batch."""
        step = scope.current().part
        if step is None:
            return loss
        return step.shared_loss(loss, divisor, of_data)


class Unweighted:
    """The losses of one training without weights.

    Args:
        process_set: A `kr.ProcessSet`, whose ranks train.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self.process_set = process_set
        self._needs_weights = False

    def shared(
        self, loss: Tensor, divisor: Divisor | None, of_data: bool
    ) -> Tensor:
        """Returns the loss unchanged, and notes whether it needs a factor."""
        del divisor
        self._needs_weights = self._needs_weights or of_data
        return loss

    def warn(self) -> None:
        """Warns if the mean of the losses is not that of the whole batch."""
        if self._needs_weights and not shares_nothing(self.process_set):
            _warn_once(self.process_set.ranks[0])


@functools.cache
def _warn_once(rank: int) -> None:
    if topology.rank() != rank:
        return
    logging.warning(
        "keras_ring: a loss is divided by what this rank's data has: the "
        "number of its tokens that are not masked, or the sum of its sample "
        "weights. Gradients are averaged, so a rank with few of them counts "
        "as much as one with many, which is not what one process would do "
        "with the whole batch. `weighted=True` of `kr.DistributedOptimizer` "
        "or `kr.DistributedGradientTape` makes it the same."
    )


Losses = Weighting | OfWholeBatch | Unweighted


@contextlib.contextmanager
def weighting(found: Losses) -> Iterator[None]:
    """Registers the losses that Keras computes inside with `found`."""
    with scope.inside(losses=found):
        yield


def factor_of(weight: Tensor, process_set: ProcessSet) -> Tensor:
    """Returns the scalar `n W_r / sum_q W_q`, or 0 if all weights are 0.

    Args:
        weight: A scalar, the `W_r` of this rank.
        process_set: A `kr.ProcessSet`, whose ranks count.
    """
    return backend.share_of(weight, process_set)


def check_losses(settings: ReductionSettings, what: str) -> None:
    """Checks the losses of gradients that are about to be reduced.

    Raises:
        ValueError: If `weighted` is set, and the update is not that of a `fit`
            with losses of Keras.
    """
    found = scope.current().losses
    if isinstance(found, Unweighted):
        found.warn()
    if not settings.weighted:
        return
    if isinstance(found, Weighting) and found.has_losses:
        return
    where = "outside of `fit`" if found is None else "without a loss of Keras"
    raise ValueError(
        f"{what} was made with `weighted=True` and is used {where}: nothing "
        "tells what the loss was divided by. In `fit`, take a loss of "
        "`keras.losses`. In a loop of your own, take a plain optimizer and "
        "`with kr.DistributedGradientTape(tf.GradientTape(), weighted=True) "
        "as tape:` around the loss, or give "
        "`tape.gradient(loss, sources, weight=...)` what it was divided by."
    )


def of_settings(settings: ReductionSettings) -> Losses | None:
    """Returns the object for the losses of a training with these settings."""
    if settings.whole_batch:
        return OfWholeBatch()
    if settings.weighted:
        if not compat.TELLS_DIVISORS:
            raise ValueError(
                "`weighted=True` needs Keras 3. With Keras 2, give "
                "`tape.gradient(loss, sources, weight=...)` of a "
                "`kr.DistributedGradientTape` what the loss was divided by."
            )
        return Weighting(settings.process_set)
    if compat.TELLS_DIVISORS and settings.op is reduce_ops.Average:
        return Unweighted(settings.process_set)
    return None


def install(settings_of: SettingsOf, *, whole_batches: bool = False) -> None:
    """Hooks the losses of Keras if possible. A second call changes nothing.

    Args:
        settings_of: Function that returns the `ReductionSettings` of an
            optimizer, or `None`.
        whole_batches: Boolean, whether there are steps on parts of batches. If
            so, losses of Keras 2 are hooked, too.
    """
    if not compat.TELLS_DIVISORS and not whole_batches:
        return
    hooks.subscribe(
        events.LOSS_REDUCED, _shared, ring=Ring.WEIGHT, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.LOSS_MASKED, _is_part, ring=Ring.WEIGHT, purpose=_PURPOSE
    )
    weighted = functools.partial(_in_weighting, settings_of=settings_of)
    hooks.subscribe(
        events.FIT_RUNS, weighted, ring=Ring.WEIGHT, purpose=_PURPOSE
    )
    hooks.subscribe(
        events.BATCH_TRAINED, weighted, ring=Ring.WEIGHT, purpose=_PURPOSE
    )


def _shared(loss: Tensor, divisor: Divisor | None, of_data: bool) -> Tensor:
    found = scope.current().losses
    return loss if found is None else found.shared(loss, divisor, of_data)


def _is_part() -> bool:
    step = scope.current().part
    return step is not None and step.is_part


def _in_weighting(
    function: Callable[..., Any], settings_of: SettingsOf
) -> Callable[..., Any]:
    # AutoGraph must convert this: with Keras 2 it converts code of the model.
    @functools.wraps(function)
    def weighted(self: Model, *args: Any, **kwargs: Any) -> Any:
        settings = settings_of(getattr(self, "optimizer", None))
        if settings is None:
            return function(self, *args, **kwargs)
        # One object for all calls, because a step is traced only once.
        made_for, found = vars(self).get(_WEIGHTED, (None, None))
        if made_for != settings:
            found = of_settings(settings)
            object.__setattr__(self, _WEIGHTED, (settings, found))
        if found is None:
            return function(self, *args, **kwargs)
        with weighting(found):
            return function(self, *args, **kwargs)

    return weighted
