"""The batches, steps and results of the program's Keras.

`steps` is the module for the Keras of the program. It depends on more internals
of Keras than `compat`, so it is imported only in programs that train by
`--auto`, or on the batches that an elastic job deals out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from keras_ring._typing import Callback, Model, Tensor
from keras_ring.keras.backends.which import is_keras2
from keras_ring.keras.lanes import batch_source, deterministic_random


class Steps(Protocol):
    """The functions of a lane that `--auto` needs."""

    @property
    def BATCH_NORMALIZATION(self) -> Any:
        """The class of layers that normalize batches."""

    @property
    def BatchIterator(self) -> Callable[[Any], batch_source.BatchIterator]:
        """Makes a `BatchIterator` of what Keras reads batches from."""

    @property
    def numbers_of_rank(self) -> Callable[[int], AbstractContextManager[None]]:
        """Makes layers in a context draw other numbers on each rank."""

    def is_own_train_step(self, model: Model) -> bool:
        """Returns whether a model overrides its step or a part of it."""

    def is_own_test_step(self, model: Model) -> bool:
        """Returns whether a model overrides its evaluation.

        That is `test_step` or `compute_metrics`.
        """

    def has_own_metrics(self, model: Model) -> bool:
        """Returns whether a model overrides `compute_metrics`.

        That counts only where metrics tell that they are updated in it.
        """

    def read_nothing(self, wanted: dict[str, Any]) -> None:
        """Makes the iterator over batches that `fit` would make.

        None is read.

        Args:
            wanted: Dictionary of the arguments of `fit` by name.
        """

    def add_callbacks(self, callbacks: Any, ours: list[Callback]) -> None:
        """Inserts callbacks at the front of an existing list.

        Args:
            callbacks: A `keras.callbacks.CallbackList`.
            ours: List of the callbacks to insert.
        """

    def without_chance(
        self, rows: deterministic_random.Rows | None
    ) -> AbstractContextManager[None]:
        """Replaces random numbers by deterministic ones in the context.

        Random numbers of NumPy are not replaced.

        Args:
            rows: The `Rows` of a batch that the numbers are for, or `None` for
                constants.
        """

    def has_known_losses(self, model: Model) -> bool:
        """Returns whether the losses of a model need no check.

        That is always so: those that are not Keras' own are computed from all
        rows (`LOSS_CALLED`).
        """

    def has_known_layers(self, model: Model) -> bool:
        """Returns whether a model has only layers and functions of Keras.

        These compute each row by itself, except `BatchNormalization`.
        """

    def is_by_rows(self, function: Any) -> bool:
        """Returns whether each row is known to be computed by itself.

        Args:
            function: A loss, as Keras calls it, or a metric. Metrics of Keras
                that are no mean over the values of a function count as known.
        """

    def mask_of(self, tensor: Any) -> Tensor:
        """Returns the mask of a layer's output, or `None` if it has none."""

    def set_mask(self, tensor: Any, mask: Tensor) -> None:
        """Sets the mask of a tensor."""


# mypy compares modules with one protocol alone, which is `Lane`.
_module: Any
if is_keras2():
    from keras_ring.keras.lanes import keras2_steps as _module
else:
    from keras_ring.keras.lanes import keras3_steps as _module

steps: Steps = _module

__all__ = ["steps"]
