"""Datasets of TensorFlow, which Keras reads with any framework."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from keras_ring._typing import Dataset


def is_dataset(value: object) -> bool:
    """Returns whether an object is a `tf.data.Dataset`."""
    tensorflow: Any = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(value, tensorflow.data.Dataset)


def nodes(dataset: Dataset) -> Iterator[Dataset]:
    """Yields a dataset and the datasets that it is made from, each once.

    Args:
        dataset: A `tf.data.Dataset`.
    """
    seen: set[int] = set()
    ahead = [dataset]
    while ahead:
        node = ahead.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        ahead.extend(node._inputs())


def reshuffles(dataset: Dataset) -> bool:
    """Returns whether each reading of a dataset has another order.

    Each one then depends on the number of those before it.

    Args:
        dataset: A `tf.data.Dataset`.
    """
    return any(
        getattr(node, "_reshuffle_each_iteration", False)
        for node in nodes(dataset)
    )
