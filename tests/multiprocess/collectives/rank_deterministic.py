"""A rank of test_deterministic.py: what the sums of many tensors hash to."""

import hashlib

import numpy as np
import tensorflow as tf

import keras_ring as kr


def digest():
    """Returns a hash of the sums of tensors whose order of addition shows."""
    kr.init()
    random = np.random.default_rng(kr.rank())
    sizes = (1, 7, 100, 1000, 4097, 60_000, 300_000) * 3
    tensors = [
        tf.constant(
            random.standard_normal(size) * np.exp(random.uniform(-9, 9, size)),
            tf.float32,
        )
        for size in sizes
    ]

    @tf.function
    def reduce(values):
        return [
            kr.allreduce(value, kr.Average, name=f"tensor_{i}")
            for i, value in enumerate(values)
        ]

    @tf.function
    def combine(values):
        return [
            kr.allreduce(value, kr.Adasum, name=f"vector_{i}")
            for i, value in enumerate(values)
        ]

    first = reduce(tensors)
    # Dot products are of 64 bits: in float32 their last ones do not show.
    vectors = _hash(combine([tf.cast(value, tf.float64) for value in tensors]))
    digests = [_hash(first) + vectors, _hash(reduce(tensors)) + vectors]
    halves = [value[: value.shape[0] // 2] for value in tensors]
    # A part of a tensor lies elsewhere in its bucket.
    for whole, half in zip(first, reduce(halves), strict=True):
        np.testing.assert_array_equal(whole[: half.shape[0]], half)
    return digests


def _hash(tensors):
    data = b"".join(value.numpy().tobytes() for value in tensors)
    return hashlib.sha256(data).hexdigest()
