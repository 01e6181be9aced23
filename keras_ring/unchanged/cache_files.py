"""Gives each rank a file of its own to cache a dataset in.

All ranks read the whole dataset, so the files have the same contents, and that
of rank 0 is the file that one process would write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_ring._typing import Dataset
from keras_ring.core import topology
from keras_ring.core.notices import say
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring

_PURPOSE = "each rank caches in a file of its own"


def install() -> None:
    """Changes the class of TensorFlow. Calling it once is enough."""
    hooks.subscribe(
        events.DATASET_CACHED,
        _with_own_file,
        ring=Ring.UNCHANGED,
        purpose=_PURPOSE,
    )


def _with_own_file(cache: Callable[..., Dataset]) -> Callable[..., Dataset]:
    @functools.wraps(cache)
    def cache_in_own_file(
        self: Dataset, filename: Any = "", *args: Any, **kwargs: Any
    ) -> Dataset:
        if tf.executing_eagerly():
            path = tf.get_static_value(tf.convert_to_tensor(filename)).decode()
            if path and topology.rank() > 0:
                filename = f"{path}.rank-{topology.rank()}"
                say(
                    f"a dataset is cached in {filename!r} by this rank, in "
                    f"{path!r} by rank 0",
                    rank=topology.rank(),
                )
        return cache(self, filename, *args, **kwargs)

    return cache_in_own_file
