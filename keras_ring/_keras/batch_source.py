"""What `fit` and its like read batches from, of either Keras."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import tensorflow as tf

from keras_ring._keras.patching import patch_once
from keras_ring._typing import Array, Dataset

_MADE = "_keras_ring_made"
_ARRAYS = ("x", "y", "sample_weight")
# Of `fit`: what its iterator over batches is made with.
_READ = (
    *_ARRAYS,
    "batch_size",
    "steps_per_epoch",
    "shuffle",
    "class_weight",
)
_Iterator = TypeVar("_Iterator")


@dataclasses.dataclass(frozen=True)
class Source:
    """What `fit`, `evaluate` or `predict` reads batches from.

    Args:
        kind: String: "arrays", "PyDataset", "generator" or "dataset".
        num_batches: Integer, how many it reads in an epoch. `None` if that is
            not known.
        num_samples: Integer, of arrays alone.
        batch_size: Integer, the rows of a batch, `None` if that is not known.
        arrays: List of arrays, of arrays alone.
    """

    kind: str
    num_batches: int | None
    num_samples: int | None = None
    batch_size: int | None = None
    arrays: tuple[Array, ...] = ()


class BatchIterator(Protocol):
    """The iterator over batches that Keras makes for one call."""

    dataset: Dataset
    """The batches, of one epoch or of one after another."""

    def source(self) -> Source:
        """Returns what the batches come from."""

    def set_num_batches(self, count: int) -> None:
        """Has an epoch read another number of batches, from the first on."""

    def divide_num_batches(self, parts: int) -> None:
        """Has an epoch read a part of the batches, rounded up."""

    def num_executed_batches(self) -> int | None:
        """Returns how many batches one pass reads, `None` if nobody knows."""

    @property
    def num_batches_of_data(self) -> int | None:
        """How many batches there are, `None` if nobody knows, or no end."""


class Shortened:
    """A data adapter that has another number of batches.

    Args:
        adapter: Keras' own.
        num_batches: Integer, how many. Keras 3 reads the attribute.
    """

    def __init__(self, adapter: Any, num_batches: int) -> None:
        self._adapter = adapter
        self.num_batches = num_batches

    def get_size(self) -> int:
        """Returns the number, to Keras 2."""
        return self.num_batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


def hook_passes(
    owner: Any,
    begins: str,
    iterator: Callable[[Any], _Iterator],
    made: Callable[[_Iterator], Any],
    begun: Callable[[Any], None],
    purpose: str,
) -> None:
    """Has functions see what a class of Keras reads, and when it begins.

    Args:
        owner: The class, of which Keras makes one for each call of `fit` and
            its like.
        begins: String, the name of its method that begins a pass over the
            data. It may be a generator.
        iterator: Makes the `BatchIterator` of one.
        made: As of `hook_batches` of either Keras.
        begun: Likewise.
        purpose: String, what for.
    """

    def around_init(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            setattr(self, _MADE, made(iterator(self)))

        return make

    def around_begin(begin: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(begin)
        def begin_and_tell(self: Any) -> Any:
            # Keras 2 has a generator here, which has done nothing so far.
            result = begin(self)
            begun(getattr(self, _MADE, None))
            return result

        return begin_and_tell

    patch_once(owner, "__init__", around_init, purpose)
    patch_once(owner, begins, around_begin, purpose)


def training_data(
    wanted: dict[str, Any], split: Callable[..., tuple[Any, Any]]
) -> dict[str, Any]:
    """Returns what `fit` makes its iterator over batches with.

    Args:
        wanted: The arguments of `fit` by name.
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
    """Returns the rows of each batch, `None` if they are not all as many."""
    for spec in tf.nest.flatten(dataset.element_spec):
        shape = getattr(spec, "shape", None)
        if shape is not None and shape.rank:
            rows: int | None = shape[0]
            return rows
    return None
