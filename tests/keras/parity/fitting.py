"""Cases that are one or more calls of `fit`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

import keras_ring as kr
from tests.keras.parity import models
from tests.keras.parity.models import BATCH_SIZE


def momentum():
    """Returns the optimizer of cases that are not about optimizers."""
    return keras.optimizers.SGD(0.05, momentum=0.9)


def distributed(optimizer, **settings):
    """Returns the optimizer as it is in one process, where nothing reduces."""
    if kr.size() == 1:
        return optimizer
    return kr.DistributedOptimizer(optimizer, **settings)


def shard(data):
    return kr.data.shard(data, uneven="error")


def fit(model, data, **settings):
    """Calls `fit` for this rank's part of each batch of `data`."""
    x, y, *weights = data
    model.fit(
        x,
        y,
        sample_weight=weights[0] if weights else None,
        batch_size=BATCH_SIZE // kr.size(),
        shuffle=False,
        verbose=0,
        **settings,
    )


@dataclasses.dataclass(frozen=True)
class Fit:
    """Trains with `model.fit`, and returns the variables of the model.

    Attributes:
        optimizer: Makes the optimizer.
        settings: Arguments of `DistributedOptimizer`, or what makes them of
            the model.
        model: Makes the model.
        data: Makes what `fit` takes.
        loss: Makes the loss.
        compile: Further arguments of `compile`.
        fit: Further arguments of `fit`.
        callbacks: Makes callbacks, of the model.
    """

    optimizer: Callable[[], Any] = momentum
    settings: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] = (
        dataclasses.field(default_factory=dict)
    )
    model: Callable[[], Any] = models.classifier
    data: Callable[[], Any] = models.make_data
    loss: Callable[[], Any] = models.sparse_loss
    compile: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fit: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    callbacks: Callable[[Any], list[Any]] = lambda model: []

    def __call__(self):
        model = self.model()
        settings = self.settings
        if callable(settings):
            settings = settings(model)
        optimizer = distributed(self.optimizer(), **settings)
        model.compile(optimizer, self.loss(), **self.compile)
        callbacks = self.callbacks(model)
        data = shard(self.data())
        fit(model, data, callbacks=callbacks, **self.fit)
        return model.variables
