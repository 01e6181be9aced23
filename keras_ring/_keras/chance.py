"""Numbers in place of random ones, to compare steps on parts of a batch with.

Those of a row depend on where it is in the whole batch, so that a part has the
numbers that its rows have in the whole; or they are constants.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from keras_ring._typing import DType, Tensor


class Rows(NamedTuple):
    """Which rows of a batch a step has.

    Args:
        begin: Integer, or an integer scalar, the first of them.
        count: The same, how many.
    """

    begin: Any
    count: Any


# Of a whole batch, whose numbers begin with its first row.
WHOLE = Rows(0, 1)
# Whether `keras.random` draws other numbers on each rank in steps alone, from a
# state that all ranks have.
is_of_steps = False
# Of the shape, in [0, 1).
Uniform = Callable[[Any], Tensor]


def numbers(rows: Rows | None) -> Uniform:
    """Returns what makes tensors of numbers that do not depend on chance.

    Args:
        rows: Which rows the numbers are for. `None` for a constant.
    """
    if rows is None:
        return lambda shape: tf.fill(shape, tf.constant(0.25, tf.float64))

    def of_places(shape: Any) -> Tensor:
        shape = tf.cast(shape, tf.int64)
        if shape.shape[0] == 0:
            return tf.constant(0.25, tf.float64)
        count = tf.cast(rows.count, tf.int64)
        # What has not as many rows, or some for each, is not of the rows.
        begin = tf.where(
            tf.math.floormod(shape[0], tf.maximum(count, 1)) == 0,
            tf.cast(rows.begin, tf.int64) * (shape[0] // tf.maximum(count, 1)),
            tf.zeros([], tf.int64),
        )
        before = begin * tf.reduce_prod(shape[1:])
        places = before + tf.range(tf.reduce_prod(shape))
        # Digits of a sine that nobody looks at: as good as random here.
        mixed = tf.sin(tf.cast(places, tf.float64) * 12.9898 + 1.0) * 43758.5453
        return tf.reshape(mixed - tf.floor(mixed), shape)

    return of_places


class Drawn:
    """What stands in for functions that draw random numbers.

    Args:
        uniform: Makes numbers in [0, 1).
        floatx: Returns the type where none is given.
    """

    def __init__(self, uniform: Uniform, floatx: Callable[[], str]) -> None:
        self._uniform = uniform
        self._floatx = floatx

    def of_tensorflow(self) -> dict[str, Callable[..., Tensor]]:
        """Returns what is in place of functions of `tf.random`, by name."""
        return {
            "normal": self.normal,
            "truncated_normal": self.normal,
            "uniform": self.uniform,
        }

    @staticmethod
    def dropout(inputs: Tensor, *_: Any, **__: Any) -> Tensor:
        """What is dropped: nothing."""
        return inputs

    def normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: DType = None,
        **_: Any,
    ) -> Tensor:
        """Of that mean and deviation, if not of that distribution."""
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
        """Between these."""
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
        """Integers between these."""
        return self.uniform(shape, minval, maxval, dtype)


@contextlib.contextmanager
def graph_seed(rank: int) -> Iterator[None]:
    """Has operations made inside draw other random numbers on each rank.

    Where no variable tells what they draw, it is the seed of the graph that
    they are traced in. Eagerly all ranks draw the same, but by `keras.random`
    (`of_rank`).

    Args:
        rank: Integer, that of this process.
    """
    token = _rank.set(rank)
    try:
        with _graph_seed(rank):
            yield
    finally:
        _rank.reset(token)


def of_rank(seed: Tensor) -> Tensor:
    """Returns a seed that all ranks have drawn, of this rank in a step.

    Args:
        seed: Two words.
    """
    rank = _rank.get()
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
# Of the step that runs, or is traced, here.
_rank: contextvars.ContextVar[int] = contextvars.ContextVar(
    "keras_ring_rank_of_numbers", default=0
)
