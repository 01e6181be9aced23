"""The files in which a `tf.data.Dataset` is cached."""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from keras_ring._typing import Dataset
from keras_ring.keras.agreement import data_parts
from keras_ring.keras.backends.tf_data import nodes


def files_of(dataset: Dataset, before_split: bool) -> Iterator[str]:
    """Yields the files that a dataset is cached in.

    Nothing is raised: a rank that raised alone would leave the others waiting.
    A dataset that cannot be inspected counts as one without files.

    Args:
        dataset: A `tf.data.Dataset`.
        before_split: Boolean, whether it is still to be split, so that all
            ranks may read the same complete cache file.
    """
    try:
        yield from _found(dataset, before_split)
    except Exception as error:
        logging.debug("keras_ring: no look into a dataset: %s", error)


def _found(dataset: Dataset, before_split: bool) -> Iterator[str]:
    shared = _before_split(dataset)
    for node in nodes(dataset):
        file = getattr(node, "_filename", None)
        if file is None or type(node).__name__ != "CacheDataset":
            continue
        path = os.path.abspath(tf.get_static_value(file).decode())
        is_shared = before_split or id(node) in shared
        is_memory = not tf.get_static_value(file)
        # A complete file is read by all ranks and written by none.
        if is_memory or (is_shared and os.path.exists(f"{path}.index")):
            continue
        yield path


def _before_split(dataset: Dataset) -> set[int]:
    """Returns the ids of the datasets that come before a split by rank."""
    return {
        id(source)
        for node in nodes(dataset)
        if data_parts.is_part(node)
        or getattr(node, "_num_shards", None) is not None
        for source in nodes(node)
        if source is not node
    }
