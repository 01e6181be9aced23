"""Constants in place of the random numbers of Keras 3, on any framework."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from keras_ring._typing import Tensor
from keras_ring.keras.backends.which import keras
from keras_ring.keras.lanes.patching import replaced

_CONSTANT = 0.25
_OF_FLOATS = ("normal", "uniform", "truncated_normal")


@contextlib.contextmanager
def without_chance() -> Iterator[None]:
    """Replaces what `keras.random` draws in the context by constants.

    Nothing is dropped, and nothing is shuffled. Random numbers of NumPy are not
    replaced.
    """

    def constant(shape: Any, *_: Any, dtype: Any = None, **__: Any) -> Tensor:
        dtype = dtype or keras.config.floatx()
        return keras.ops.full(tuple(shape), _CONSTANT, dtype)

    def lowest(
        shape: Any, minval: Any, *_: Any, dtype: Any = "int32", **__: Any
    ) -> Tensor:
        return keras.ops.full(tuple(shape), minval, dtype)

    def unchanged(inputs: Tensor, *_: Any, **__: Any) -> Tensor:
        return inputs

    with replaced(
        keras.src.backend.random,
        {
            **dict.fromkeys(_OF_FLOATS, constant),
            **dict.fromkeys(("dropout", "shuffle"), unchanged),
            "randint": lowest,
        },
    ):
        yield
