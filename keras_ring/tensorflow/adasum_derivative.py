"""The derivative of an Adasum, which csrc/collective/adasum.h defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_ring._typing import Tensor


def padded(everyone: Tensor, most: int) -> Tensor:
    """Appends vectors of zeros, which change no Adasum and no gradient.

    Args:
        everyone: A tensor with the vectors of all ranks along the first
            dimension, whose size is unknown.
        most: Integer, the most vectors that there may be.

    Returns:
        A tensor with a power of two of vectors.
    """
    count = 1 << (most - 1).bit_length()
    after = count - tf.shape(everyone)[0]
    around = tf.pad([[0, after]], [[0, everyone.shape.rank - 1], [0, 0]])
    return tf.ensure_shape(
        tf.pad(everyone, around), [count, *everyone.shape[1:]]
    )


def gradient_of_own(everyone: Tensor, rank: Any, gradient: Tensor) -> Tensor:
    """Returns the gradient of an Adasum by the vector of one rank.

    The factors of an Adasum depend on the vectors, so the result is not just
    the gradient times a factor: it has terms along the vectors themselves.

    Args:
        everyone: A tensor of floats with the vectors of all ranks in their
            order along the first dimension, whose size is known.
        rank: Integer, the rank whose gradient is wanted. It may be a scalar
            if there is a power of two of vectors.
        gradient: A tensor, the gradient of the result.

    Returns:
        A tensor like `gradient`.
    """
    # As in the reduction, because 16 bits are too few for products.
    wide = tf.float32 if everyone.dtype.size < 4 else everyone.dtype
    vectors = [tf.cast(vector, wide) for vector in tf.unstack(everyone)]
    pairs = []
    while len(vectors) > 1:
        partner = rank ^ 1
        # With a power of two, everyone has a partner.
        if not isinstance(rank, int) or partner < len(vectors):
            pairs.append(_Pair(_at(vectors, rank), _at(vectors, partner)))
        combined = [
            _Pair(a, b).combine()
            for a, b in zip(vectors[::2], vectors[1::2], strict=False)
        ]
        vectors = combined + vectors[2 * len(combined) :]
        rank //= 2
    back = tf.cast(gradient, wide)
    for pair in reversed(pairs):
        back = pair.gradient_of_own(back)
    return tf.cast(back, gradient.dtype)


def _at(vectors: Sequence[Tensor], index: Any) -> Tensor:
    """Returns the vector at an index that may be a scalar."""
    if isinstance(index, int):
        return vectors[index]
    return tf.stack(vectors)[index]


class _Pair:
    """Two vectors: the one that contains the wanted rank's, and the other."""

    def __init__(self, own: Tensor, other: Tensor) -> None:
        self._own = own
        self._other = other
        self._product = tf.reduce_sum(own * other)
        # Zero if the norm is zero: the factor is then the constant 1.
        self._by_own = tf.math.reciprocal_no_nan(tf.reduce_sum(own * own))
        self._by_other = tf.math.reciprocal_no_nan(tf.reduce_sum(other * other))

    def combine(self) -> Tensor:
        of_own = 1 - self._product * self._by_own / 2
        of_other = 1 - self._product * self._by_other / 2
        return of_own * self._own + of_other * self._other

    def gradient_of_own(self, gradient: Tensor) -> Tensor:
        along_own = tf.reduce_sum(gradient * self._own) * self._by_own
        along_other = tf.reduce_sum(gradient * self._other) * self._by_other
        product = self._product * self._by_own
        return (
            (1 - product / 2) * gradient
            + product * along_own * self._own
            - (along_own + along_other) / 2 * self._other
        )
