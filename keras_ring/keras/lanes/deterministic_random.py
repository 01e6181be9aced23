"""Deterministic numbers in place of random ones, and random seeds of ranks.

The numbers make steps on parts of a batch comparable with the step on the whole
batch. They depend on the position of a row in the whole batch, so that a part
has the numbers that its rows have in the whole, or they are constants.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from keras_ring._typing import DType, Tensor
from keras_ring.keras import scope


class Rows(NamedTuple):
    """The rows of a batch that a step has.

    Args:
        begin: Integer, or an integer scalar, the index of the first row.
        count: Integer, or an integer scalar, the number of rows.
    """

    begin: Any
    count: Any


# The rows of a whole batch, whose numbers begin with its first row.
WHOLE = Rows(0, 1)
# Takes a shape and returns numbers in [0, 1).
Uniform = Callable[[Any], Tensor]


def numbers(rows: Rows | None) -> Uniform:
    """Returns a function that makes tensors of deterministic numbers.

    Args:
        rows: The `Rows` that the numbers are for, or `None` for a constant.
    """
    if rows is None:
        return lambda shape: tf.fill(shape, tf.constant(0.25, tf.float64))

    def of_positions(shape: Any) -> Tensor:
        shape = tf.cast(shape, tf.int64)
        if shape.shape[0] == 0:
            return tf.constant(0.25, tf.float64)
        count = tf.cast(rows.count, tf.int64)
        # A first dimension that is no multiple of the rows is not of the rows.
        begin = tf.where(
            tf.math.floormod(shape[0], tf.maximum(count, 1)) == 0,
            tf.cast(rows.begin, tf.int64) * (shape[0] // tf.maximum(count, 1)),
            tf.zeros([], tf.int64),
        )
        before = begin * tf.reduce_prod(shape[1:])
        positions = before + tf.range(tf.reduce_prod(shape))
        # The low digits of a sine are random enough here.
        mixed = (
            tf.sin(tf.cast(positions, tf.float64) * 12.9898 + 1.0) * 43758.5453
        )
        return tf.reshape(mixed - tf.floor(mixed), shape)

    return of_positions


class Drawn:
    """Replacements for functions that draw random numbers.

    Args:
        uniform: Callable that takes a shape and returns numbers in [0, 1).
        floatx: Callable that returns the default type.
    """

    def __init__(self, uniform: Uniform, floatx: Callable[[], str]) -> None:
        self._uniform = uniform
        self._floatx = floatx

    def of_tensorflow(self) -> dict[str, Callable[..., Tensor]]:
        """Returns the replacements for functions of `tf.random`, by name."""
        return {
            "normal": self.normal,
            "truncated_normal": self.normal,
            "uniform": self.uniform,
        }

    @staticmethod
    def dropout(inputs: Tensor, *_: Any, **__: Any) -> Tensor:
        """Returns the inputs: nothing is dropped."""
        return inputs

    def normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: DType = None,
        **_: Any,
    ) -> Tensor:
        """Returns numbers of this mean and deviation, uniformly distributed."""
        width = math.sqrt(12.0)
        values = (self._uniform(shape) - 0.5) * width
        dtype = dtype or self._floatx()
        return mean + stddev * tf.cast(values, dtype)

    def uniform(
        self,
        shape: Any,
        minval: Any = 0.0,
        maxval: Any = None,
        dtype: DType = None,
        **_: Any,
    ) -> Tensor:
        """Returns numbers in [minval, maxval)."""
        dtype = tf.as_dtype(dtype or self._floatx())
        low = tf.cast(minval, tf.float64)
        high = tf.cast(1 if maxval is None else maxval, tf.float64)
        values = low + (high - low) * self._uniform(shape)
        return tf.cast(tf.floor(values) if dtype.is_integer else values, dtype)

    def randint(
        self,
        shape: Any,
        minval: Any,
        maxval: Any,
        dtype: DType = "int32",
        **_: Any,
    ) -> Tensor:
        """Returns integers in [minval, maxval)."""
        return self.uniform(shape, minval, maxval, dtype)


@contextlib.contextmanager
def graph_seed(rank: int) -> Iterator[None]:
    """Makes operations in the context draw other numbers on each rank.

    Operations without a state variable draw by the seed of the graph that they
    are traced in, which is changed here. Eagerly, all ranks draw the same
    numbers, except through `keras.random` (see `of_rank`).

    Args:
        rank: Integer, the rank of this process.
    """
    with scope.inside(rank_of_numbers=rank):
        with _graph_seed(rank):
            yield


def of_rank(seed: Tensor) -> Tensor:
    """Returns this rank's variant of a seed, in a step; else the seed itself.

    Args:
        seed: Tensor of two integers, a seed that all ranks have drawn.
    """
    rank = scope.current().rank_of_numbers
    if not rank:
        return seed
    return seed + tf.constant([rank * _SEED_STEP, rank], seed.dtype)


@contextlib.contextmanager
def _graph_seed(rank: int) -> Iterator[None]:
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    seed = None if graph is None else graph.seed
    if seed is None or graph is None:
        yield
        return
    graph.seed = (seed + rank * _SEED_STEP) % 2**31
    try:
        yield
    finally:
        graph.seed = seed


_SEED_STEP = 1_000_003
