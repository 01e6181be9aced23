"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras_ring._typing import Model, Tensor, Variable
from keras_ring.core import process_sets, reduce_ops
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.keras.agreement.shared_paths import shared_path
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import compat, keras


@keras.saving.register_keras_serializable(package="keras_ring")
class SyncBatchNormalization(
    compat.BatchNormalization  # type: ignore[misc, name-defined]
):
    """Normalizes by the mean and variance of the batches of all ranks.

    `keras.layers.BatchNormalization` uses those of its own rank's batch, which
    may be too small. The result of this layer is that of one process with the
    batches of all ranks together, whatever their sizes, and the moving
    statistics are the same on all ranks.

    It costs one small reduction in the forward pass and one in the backward
    pass. In inference, and if the layer is frozen, there is none. All arguments
    are those of `keras.layers.BatchNormalization`; `synchronized` has no
    effect.

    Masks are applied, and ranks may mask different numbers of elements.

    Args:
        axis: As in `keras.layers.BatchNormalization`.
        process_set: A `kr.ProcessSet`, whose ranks' batches count, or a list
            of its ranks. It is saved as such a list. A job that loads the
            layer must have added a process set of these ranks before. Defaults
            to all ranks.

    Example:
    ```python
    model = keras.Sequential([
        keras.layers.Conv2D(32, 3, use_bias=False),
        kr.SyncBatchNormalization(),
        keras.layers.ReLU(),
    ])
    ```
    """

    def __init__(
        self,
        axis: int = -1,
        *,
        process_set: ProcessSet | list[int] = global_process_set,
        **kwargs: Any,
    ) -> None:
        super().__init__(axis=axis, **kwargs)
        if not isinstance(process_set, ProcessSet):
            process_set = process_sets.with_ranks(process_set)
        self.process_set = process_set

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, for saving."""
        config: dict[str, Any] = super().get_config()
        config.pop("synchronized", None)
        if self.process_set is not global_process_set:
            config["process_set"] = self.process_set.ranks
        return config

    def is_alone(self) -> bool:
        """Returns whether only the batches of this rank count."""
        return process_sets.is_alone(self.process_set)

    def moments_of_all_ranks(
        self, inputs: Tensor, axes: Sequence[int], mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns mean and variance in training.

        Args:
            inputs: A tensor.
            axes: Integers, all axes of `inputs` except that of the channels.
            mask: A boolean tensor, or `None`.
        """
        return moments_of_all_ranks(
            self.moving_mean, inputs, axes, mask, self.process_set
        )

    @classmethod
    def convert(
        cls, model: Model, *, process_set: ProcessSet = global_process_set
    ) -> Model:
        """Converts each `BatchNormalization` of a model to this class.

        The layers are changed in place: weights, names and the state of the
        optimizer stay, and references to the model or to a layer stay valid.
        Layers of nested models are changed, too. Layers of subclasses of
        `BatchNormalization` in the program are not.

        Args:
            model: A `keras.Model`, such as one of `keras.applications`, or a
                layer.
            process_set: A `kr.ProcessSet`, whose ranks normalize together.
                Defaults to all ranks.

        Returns:
            `model`.

        Raises:
            ValueError: If a layer uses `renorm`.

        Example:
        ```python
        model = keras.applications.MobileNetV2(weights=None, classes=10)
        model = kr.SyncBatchNormalization.convert(model)
        ```
        """
        found = [
            layer
            for layer in model._flatten_layers()
            if type(layer) is keras.layers.BatchNormalization
        ]
        for layer in found:
            if getattr(layer, "renorm", False):
                raise ValueError(
                    f"Layer {layer.name!r} uses `renorm`, which corrects the "
                    "statistics of small batches. Make it without, to have "
                    "those of all ranks."
                )
        for layer in found:
            # Bypasses the layer's own `__setattr__`, which tracks attributes.
            object.__setattr__(layer, "process_set", process_set)
            object.__setattr__(layer, "synchronized", compat.SYNCHRONIZED)
            # The fused operation of Keras 2 cannot include other ranks.
            object.__setattr__(layer, "fused", False)
            object.__setattr__(layer, "__class__", cls)
        # Traced functions contain the layers before the change.
        for name in ("train_function", "test_function", "predict_function"):
            if found and getattr(model, name, None) is not None:
                setattr(model, name, None)
        return model


def moments_of_all_ranks(
    moving_mean: Variable,
    inputs: Tensor,
    axes: Sequence[int],
    mask: Tensor,
    process_set: ProcessSet = global_process_set,
) -> tuple[Tensor, Tensor]:
    """Returns mean and variance of the batches of all ranks.

    Args:
        moving_mean: The variable of that name, whose path is the name of the
            exchange.
        inputs: A tensor.
        axes: Integers, all axes of `inputs` except that of the channels.
        mask: A boolean tensor, or `None`.
        process_set: A `kr.ProcessSet`, whose ranks' batches count. Defaults to
            all ranks.
    """
    mean, variance, _ = counted_moments_of_all_ranks(
        moving_mean, inputs, axes, mask, process_set
    )
    return mean, variance


def counted_moments_of_all_ranks(
    moving_mean: Variable,
    inputs: Tensor,
    axes: Sequence[int],
    mask: Tensor,
    process_set: ProcessSet = global_process_set,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns mean, variance, and the number of elements that were counted.

    Args:
        moving_mean: As for `moments_of_all_ranks`, like the others.
        inputs: A tensor.
        axes: Integers, all axes of `inputs` except that of the channels.
        mask: A boolean tensor, or `None`.
        process_set: A `kr.ProcessSet`, whose ranks' batches count. Defaults to
            all ranks.
    """
    ops = backend.ops
    if mask is None:
        count = ops.cast(_elements(inputs, axes), inputs.dtype)
        mean = ops.divide_no_nan(ops.sum(inputs, axes), count)
        weights = None
    else:
        weights = ops.cast(
            ops.broadcast_to(ops.expand_dims(mask, -1), ops.shape(inputs)),
            inputs.dtype,
        )
        # The count is the same for each channel: a mask has no channels.
        count = ops.max(ops.sum(weights, axes))
        mean = ops.divide_no_nan(ops.sum(inputs * weights, axes), count)
    squares = ops.square(inputs - _as_channels(mean, inputs, axes))
    if weights is not None:
        squares *= weights
    variance = ops.divide_no_nan(ops.sum(squares, axes), count)
    return _of_all_ranks(moving_mean, count, mean, variance, process_set)


def _of_all_ranks(
    moving_mean: Variable,
    count: Tensor,
    mean: Tensor,
    variance: Tensor,
    process_set: ProcessSet,
) -> tuple[Tensor, Tensor, Tensor]:
    """Combines the moments of each rank, weighted by its batch.

    It computes in float64, because the mean of the squares and the square of
    the mean may be far larger than the variance. These are a few numbers per
    channel.
    """
    ops, dtype = backend.ops, mean.dtype
    count, mean, variance = (
        ops.cast(each, "float64") for each in (count, mean, variance)
    )
    sums = ops.concatenate(
        [
            ops.reshape(count, [1]),
            count * mean,
            count * (variance + ops.square(mean)),
        ],
        axis=0,
    )
    (name,) = backend.unique_names(
        "sync_batch_normalization", [str(shared_path(moving_mean))]
    )
    sums = backend.allreduce(
        sums, reduce_ops.Sum, name=name, process_set=process_set
    )
    channels = mean.shape[0]
    total = sums[:1]
    means, squares = sums[1 : 1 + channels], sums[1 + channels :]
    mean = ops.divide_no_nan(means, total)
    variance = ops.divide_no_nan(squares, total) - ops.square(mean)
    # Rounding may make the variance of a constant negative.
    variance = ops.maximum(variance, ops.zeros_like(variance))
    return ops.cast(mean, dtype), ops.cast(variance, dtype), total[0]


def _elements(inputs: Tensor, axes: Sequence[int]) -> Any:
    """Returns the number of elements of a channel, an integer or a scalar."""
    shape = backend.ops.shape(inputs)
    elements: Any = 1
    for axis in axes:
        elements *= shape[axis]
    return elements


def _as_channels(
    statistic: Tensor, inputs: Tensor, axes: Sequence[int]
) -> Tensor:
    shape = [1 if axis in axes else -1 for axis in range(len(inputs.shape))]
    return backend.ops.reshape(statistic, shape)
