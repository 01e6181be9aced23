"""The moving statistics of batch normalization, over all ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from keras_ring._typing import Model
from keras_ring.core import arrays, reduce_ops, topology
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.model.sync_batch_normalization import (
    SyncBatchNormalization,
)


@contextlib.contextmanager
def averaged_statistics(model: Model, wanted: bool = True) -> Iterator[None]:
    """Sets the moving statistics of all ranks inside of a context.

    All ranks must enter it. At the end the model gets its own statistics back.
    The mean is the mean of the ranks' means. The variance is that of all data:
    the mean of the variances plus the variance of the means (the law of total
    variance, for ranks with equally many data).

    Args:
        model: A `keras.Model`.
        wanted: Boolean. If `False`, nothing is changed.
    """
    layers = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
        and not isinstance(layer, SyncBatchNormalization)
        and layer.built
    ]
    if not wanted or topology.stays_alone() or not layers:
        yield
        return
    statistics = [
        (layer.moving_mean, layer.moving_variance) for layer in layers
    ]
    before = [compat.as_numpy(each) for pair in statistics for each in pair]
    sums = []
    for mean, variance in zip(before[::2], before[1::2], strict=True):
        mean, variance = mean.astype("float64"), variance.astype("float64")
        sums.append(np.stack([mean, variance + mean**2]))
    averages = arrays.allreduce_group(
        sums, reduce_ops.Average, name="moving_statistics"
    )
    for (mean, variance), average in zip(statistics, averages, strict=True):
        of_all, squares = average
        mean.assign(of_all)
        # Rounding may make the variance of a constant negative.
        variance.assign(np.maximum(squares - of_all**2, 0.0))
    try:
        yield
    finally:
        variables = [each for pair in statistics for each in pair]
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
