"""Casts for the wire."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from keras_ring.tensorflow.compression import Compression, Compressor

FLOATS = ["float16", "bfloat16", "float32", "float64"]
NARROW = {"fp16": "float16", "bf16": "bfloat16"}


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("name", ["none", "fp16", "bf16"])
def test_only_wider_floats_are_cast(name, dtype):
    compression = getattr(Compression, name)
    tensor = tf.cast([0, 1, 1], dtype)
    sent, restored_dtype = compression.compress(tensor)
    if name != "none" and dtype in ("float32", "float64"):
        assert sent.dtype == NARROW[name]
    else:
        assert sent is tensor
    received = compression.decompress(sent, restored_dtype)
    assert received.dtype == dtype
    assert received.numpy().tolist() == tensor.numpy().tolist()


@pytest.mark.parametrize(("name", "bits"), [("fp16", 11), ("bf16", 8)])
def test_rounding(name, bits):
    compression = getattr(Compression, name)
    values = np.random.default_rng(0).normal(size=1000).astype("float32")
    received = compression.decompress(*compression.compress(values)).numpy()
    assert np.all(np.abs(received - values) <= np.abs(values) * 2.0**-bits)
    assert np.any(received != values)


def test_range():
    large = tf.constant([1e30])
    assert np.isinf(Compression.fp16.compress(large)[0].numpy())
    assert np.isfinite(Compression.bf16.compress(large)[0].numpy())


@pytest.mark.parametrize("name", ["none", "fp16", "bf16"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_keep_their_type(name, dtype):
    compression = getattr(Compression, name)
    x = tf.constant([1.0, 2.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        sent, restored_dtype = compression.compress(x)
        y = compression.decompress(sent * 2, restored_dtype)
    gradient = tape.gradient(y, x)
    assert gradient.dtype == dtype
    assert gradient.numpy().tolist() == [2.0, 2.0]


def test_which_have_native_numbers():
    """What the op rounds by itself; the others are asked to cast."""

    class Own(Compressor):
        pass

    assert Compression.none.native == 0
    assert Compression.fp16.native == 1
    assert Compression.bf16.native == 2
    assert Compressor("float16").native == 1
    assert Compressor("float32").native is None
    assert Own("float16").native is None


def test_they_are_values():
    for compression in (Compression.none, Compression.fp16, Compression.bf16):
        assert pickle.loads(pickle.dumps(compression)) == compression
    assert Compression.fp16 != Compression.bf16
