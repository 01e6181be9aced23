"""The sources that `fit` and its like read batches from, of either Keras."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from keras_ring._typing import Array, Dataset
from keras_ring.keras.backends import backend

_ARRAYS = ("x", "y", "sample_weight")
# The arguments of `fit` that its iterator over batches is made with.
_READ = (
    *_ARRAYS,
    "batch_size",
    "steps_per_epoch",
    "shuffle",
    "class_weight",
)


@dataclasses.dataclass(frozen=True)
class Source:
    """The source that `fit`, `evaluate` or `predict` reads batches from.

    Args:
        kind: String: "arrays", "PyDataset", "generator" or "dataset".
        num_batches: Integer, the number of batches of an epoch, or `None` if
            it is not known.
        num_samples: Integer, the number of samples of arrays, else `None`.
        batch_size: Integer, the rows of a batch, or `None` if not known.
        arrays: Tuple of arrays, empty if Keras 2 or another source does not
            tell them.
    """

    kind: str
    num_batches: int | None
    num_samples: int | None = None
    batch_size: int | None = None
    arrays: tuple[Array, ...] = ()


class BatchIterator(Protocol):
    """The iterator over batches that Keras makes for one call."""

    dataset: Dataset
    """The batches, of one epoch or of all epochs one after another."""

    def source(self) -> Source:
        """Returns the source of the batches."""

    def set_num_batches(self, count: int) -> None:
        """Sets the number of batches of an epoch, from the first on."""

    def divide_num_batches(self, parts: int) -> None:
        """Divides the number of batches of an epoch, rounding up."""

    def count_anew(self) -> None:
        """Makes each epoch end with its data, however many batches that are."""

    def num_executed_batches(self) -> int | None:
        """Returns the batches that one pass reads, or `None` if not known."""

    @property
    def num_batches_of_data(self) -> int | None:
        """The number of batches, or `None` if not known or infinite."""


class Shortened:
    """A data adapter with another number of batches.

    Args:
        adapter: The data adapter of Keras.
        num_batches: Integer, the number of batches, which Keras 3 reads as an
            attribute.
    """

    def __init__(self, adapter: Any, num_batches: int) -> None:
        self._adapter = adapter
        self.num_batches = num_batches

    def get_size(self) -> int:
        """Returns the number of batches; called by Keras 2."""
        return self.num_batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


class CountedAnew:
    """A data adapter whose epochs may have any number of batches.

    Args:
        adapter: The data adapter of Keras 3.
        forget: Function that is called when an epoch begins.
    """

    def __init__(self, adapter: Any, forget: Callable[[], None]) -> None:
        self._adapter = adapter
        self._forget = forget

    def on_epoch_begin(self) -> None:
        """Is called by Keras before it asks for the number."""
        self._forget()
        self._adapter.on_epoch_begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


def training_data(
    wanted: dict[str, Any], split: Callable[..., tuple[Any, Any]]
) -> dict[str, Any]:
    """Returns the arguments with which `fit` makes its iterator over batches.

    Args:
        wanted: Dictionary of the arguments of `fit` by name.
        split: Keras' `train_validation_split`.
    """
    data = {name: wanted[name] for name in _READ}
    if wanted["validation_split"] and wanted["validation_data"] is None:
        kept, _ = split(
            tuple(data[name] for name in _ARRAYS), wanted["validation_split"]
        )
        data.update(zip(_ARRAYS, kept, strict=True))
    return data


def static_rows(dataset: Dataset) -> int | None:
    """Returns the rows of each batch, or `None` if that is not static."""
    for spec in backend.flatten(dataset.element_spec):
        shape = getattr(spec, "shape", None)
        if shape is not None and shape.rank:
            rows: int | None = shape[0]
            return rows
    return None
