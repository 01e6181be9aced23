"""Remembers which data are one rank's part of something, as a `fit` says."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from typing import Any

import tensorflow as tf

from keras_ring._agreement.same_data import nodes
from keras_ring._runtime import topology


@dataclasses.dataclass(frozen=True)
class DataPart:
    """What a rank has of data that were split.

    Args:
        what: String, what was counted, such as `"samples"`.
        mine: Integer, how many each rank has, or `None` if nobody knows.
        whole: Integer, how many there are, or `None`.
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


# By the identity of data: arrays have no hash, and take no attributes.
_parts: dict[int, tuple[weakref.ref[Any], DataPart]] = {}


def remember(data: Any, part: DataPart) -> None:
    """Notes that data are a part of something.

    Args:
        data: What `kr.data.shard` returns.
        part: Which part that is.
    """
    for leaf in tf.nest.flatten(data):
        number = id(leaf)

        def forget(_: Any, number: int = number) -> None:
            _parts.pop(number, None)

        # What cannot be referred to, nobody asks for.
        with contextlib.suppress(TypeError):
            _parts[number] = (weakref.ref(leaf, forget), part)


def is_part(data: Any) -> bool:
    """Whether `remember` was told of these data, and not of their sources."""
    reference, _ = _parts.get(id(data), (None, None))
    return reference is not None and reference() is data


def find(data: Any) -> DataPart | None:
    """Returns what is known of data, or of that which they are made from.

    Args:
        data: What `fit` was given.
    """
    for leaf in tf.nest.flatten(data):
        is_dataset = isinstance(leaf, tf.data.Dataset)
        for node in nodes(leaf) if is_dataset else [leaf]:
            if is_part(node):
                return _parts[id(node)][1]
    return None
