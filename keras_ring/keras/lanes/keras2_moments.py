"""The moments of `BatchNormalization` in Keras 2."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from keras_ring._typing import Layer, Tensor
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes.wrapping import Around

Moments: TypeAlias = Callable[..., tuple[Tensor, ...] | None]


def is_saving() -> bool:
    """Returns whether the present trace becomes part of a SavedModel.

    A SavedModel is served by programs without keras_ring, each with a batch of
    its own. It is traced anew if a model is made of it again.
    """
    utils = importlib.import_module(
        f"{keras.__name__}.src.engine.base_layer_utils"
    )
    return bool(utils.call_context().saving)


def with_dims(
    moments: Iterable[Tensor], inputs: Tensor, axes: Sequence[int]
) -> tuple[Tensor, ...]:
    """Returns moments with a dimension of size 1 for each axis.

    Args:
        moments: Tensors, each a vector.
        inputs: Tensor that these are the moments of.
        axes: The axes over which they are taken.
    """
    shape = [1 if axis in axes else -1 for axis in range(inputs.shape.rank)]
    return tuple(tf.reshape(each, shape) for each in moments)


def synchronizes(moments: Moments) -> Around:
    """Returns what replaces the moments of layers with `synchronized=True`."""
    return functools.partial(_synchronizes, moments=moments)


def makes(moments: Moments) -> Around:
    """Returns what replaces the moments of a layer."""
    return functools.partial(_made_by, moments=moments)


def fuses(moments: Moments) -> Around:
    """Returns what replaces the fused operation of a layer."""
    return functools.partial(_fused_of, moments=moments)


def _synchronizes(
    plain: Callable[..., tuple[Tensor, ...]],
    moments: Moments,
) -> Callable[..., tuple[Tensor, ...]]:
    @functools.wraps(plain)
    def of_all_or_plain(
        self: Layer,
        inputs: Tensor,
        axes: Sequence[int],
        keep_dims: bool,
        mask: Tensor = None,
    ) -> tuple[Tensor, ...]:
        found = None if is_saving() else moments(self, inputs, axes, mask)
        if found is None:
            return plain(self, inputs, axes, keep_dims, mask=mask)
        return with_dims(found, inputs, axes) if keep_dims else found

    return of_all_or_plain


def _made_by(
    plain: Callable[..., tuple[Tensor, ...]],
    moments: Moments,
) -> Callable[..., tuple[Tensor, ...]]:
    @functools.wraps(plain)
    def made_or_plain(
        self: Layer,
        inputs: Tensor,
        reduction_axes: Sequence[int],
        keep_dims: bool,
        mask: Tensor = None,
    ) -> tuple[Tensor, ...]:
        found = moments(self, inputs, reduction_axes, mask)
        if found is None:
            return plain(self, inputs, reduction_axes, keep_dims, mask=mask)
        if keep_dims:
            return with_dims(found[:2], inputs, reduction_axes)
        return found[:2]

    return made_or_plain


def _fused_of(
    plain: Callable[..., Tensor],
    moments: Moments,
) -> Callable[..., Tensor]:
    @functools.wraps(plain)
    def fused_or_made(
        self: Layer, inputs: Tensor, mask: Tensor, training: Any
    ) -> Tensor:
        is_training = tf.get_static_value(training)
        if is_training is not None and not is_training:
            return plain(self, inputs, mask, training)
        axes = [i for i in range(inputs.shape.rank) if i not in self.axis]
        values = tf.cast(inputs, self._param_dtype)
        # The fused operation has no masks.
        found = moments(self, values, axes, None)
        if found is None:
            return plain(self, inputs, mask, training)
        if is_training is None:
            raise NotImplementedError(
                f"Whether layer {self.name!r} is trained is a tensor, and must "
                "be known when a step on a part of a batch is traced."
            )
        mean, variance, count = found
        # As the fused operation, which estimates the variance of the
        # population from which the batch is a sample.
        count = tf.cast(count, variance.dtype)
        unbiased = variance * count / tf.maximum(count - 1, 1)
        for moving, value in (
            (self.moving_mean, mean),
            (self.moving_variance, unbiased),
        ):
            self._assign_moving_average(moving, value, self.momentum, None)
        gamma = self.gamma if self.scale else tf.ones_like(mean)
        beta = self.beta if self.center else tf.zeros_like(mean)
        normalized = tf.nn.batch_normalization(
            values,
            *with_dims((mean, variance, beta, gamma), inputs, axes),
            self.epsilon,
        )
        return tf.cast(normalized, inputs.dtype)

    return fused_or_made
