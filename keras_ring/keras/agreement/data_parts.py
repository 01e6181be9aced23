"""Remembers which data are one rank's part of the whole data."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Iterable
from typing import Any

from keras_ring.core import topology
from keras_ring.keras.backends import backend, tf_data


@dataclasses.dataclass(frozen=True)
class DataPart:
    """The part of split data that a rank has.

    Args:
        what: String, the unit of the counts, such as `"samples"`.
        mine: Integer, the number that each rank has, or `None` if it is not
            known.
        whole: Integer, the number in the whole data, or `None`.
    """

    what: str
    mine: int | None = None
    whole: int | None = None

    def __str__(self) -> str:
        if self.mine is None or self.whole is None:
            return f"one in {topology.size()} {self.what} on each rank"
        text = f"{self.mine:,} of {self.whole:,} {self.what} on each rank"
        more = self.mine * topology.size() - self.whole
        if more > 0:
            text += f", {more:,} of them used twice"
        elif more < 0:
            text += f", {-more:,} used by none"
        return text


# Keyed by `id`: arrays have no hash, and take no attributes.
_parts: dict[int, tuple[weakref.ref[Any], DataPart]] = {}


def remember(data: Any, part: DataPart) -> None:
    """Records that data are a part of the whole data.

    Args:
        data: Arrays or a dataset, as `kr.data.shard` returns them.
        part: The `DataPart` that they are.
    """
    for leaf in backend.flatten(data):
        number = id(leaf)

        def forget(_: Any, number: int = number) -> None:
            _parts.pop(number, None)

        # Objects without weak references are not recorded.
        with contextlib.suppress(TypeError):
            _parts[number] = (weakref.ref(leaf, forget), part)


def is_part(data: Any) -> bool:
    """Returns whether these data themselves, not their sources, are a part."""
    reference, _ = _parts.get(id(data), (None, None))
    return reference is not None and reference() is data


def find(data: Any) -> DataPart | None:
    """Returns the recorded part of data, or of a dataset that they come from.

    Args:
        data: The data that `fit` was given.

    Returns:
        A `DataPart`, or `None` if none is recorded.
    """
    for leaf in backend.flatten(data):
        for node in _sources(leaf):
            if is_part(node):
                return _parts[id(node)][1]
    return None


def _sources(leaf: Any) -> Iterable[Any]:
    if not tf_data.is_dataset(leaf):
        return [leaf]
    return tf_data.nodes(leaf)
