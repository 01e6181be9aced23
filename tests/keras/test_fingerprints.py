"""What the fingerprints of variables are made of."""

import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from keras_ring.keras.agreement import fingerprints

# How many threads make them depends on the ranks of a host.
pytestmark = pytest.mark.usefixtures("ring")

DTYPES = ["float16", "bfloat16", "float32", "bool", "int64", "complex64"]


def of_all(variables, values=None):
    pieces = fingerprints.Pieces(variables)
    every, _ = pieces.some(0, pieces.effort)
    return fingerprints.of_pieces(variables, every, values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5)])
def test_bits_are_those_of_the_value(dtype, shape):
    count = int(np.prod(shape))
    values = tf.cast(tf.reshape(tf.range(1, 1 + count), shape), dtype)
    variable = tf.Variable(values)
    content = variable.numpy().tobytes()
    checksum = [zlib.crc32(content)] if content else []
    expected = fingerprints._joined(checksum)
    assert fingerprints.digest(variable) == expected
    assert fingerprints.digests([variable.numpy(), values]) == [expected] * 2
    assert of_all([variable]) == of_all([variable], [values])


def test_variables_of_keras_are_read_as_those_of_tensorflow():
    values = np.arange(12, dtype="float32").reshape(3, 4)
    ours, theirs = keras.Variable(values), tf.Variable(values)
    assert fingerprints.digest(ours) == fingerprints.digest(theirs)
    assert isinstance(fingerprints.value_of(ours), tf.Tensor)
    assert isinstance(fingerprints.value_of(values), np.ndarray)


def test_a_value_that_was_read_stays_as_it_was():
    variable = tf.Variable(tf.zeros(3))
    value = fingerprints.value_of(variable)
    variable.assign_add(tf.ones(3))
    assert value.numpy().tolist() == [0.0] * 3


def test_pieces_cover_each_byte_once(monkeypatch):
    monkeypatch.setattr(fingerprints, "_PIECE", 64)
    variables = [
        tf.Variable(tf.range(100.0)),
        tf.Variable(tf.zeros((), "int64")),
        tf.Variable(tf.zeros((4, 4))),
        tf.Variable(tf.cast(tf.range(70), "bfloat16")),
    ]
    pieces = fingerprints.Pieces(variables)
    assert len(pieces) == 7 + 1 + 1 + 3
    every, effort = pieces.some(0, pieces.effort)
    assert effort == pieces.effort
    begun = fingerprints.of_pieces(variables, every)
    seen = {begun}
    for variable in variables:
        values = variable.numpy().reshape(-1)
        for index in range(values.size):
            changed = values.copy()
            changed[index] += 1
            variable.assign(changed.reshape(variable.shape))
            seen.add(fingerprints.of_pieces(variables, every))
        variable.assign(values.reshape(variable.shape))
    assert len(seen) == 1 + 100 + 1 + 16 + 70
    assert fingerprints.of_pieces(variables, every) == begun
    last = [each for each in every if each == (0, 384, 400)]
    assert fingerprints.of_pieces(variables, last) == (
        fingerprints._joined([zlib.crc32(np.arange(96, 100, dtype="f4"))])
    )


def test_pieces_that_follow_each_other_are_of_all_kinds():
    trained, remembered = (
        [tf.Variable(tf.zeros(8)) for _ in range(count)] for count in (100, 200)
    )
    pieces = fingerprints.Pieces([*trained, *remembered])
    for begin in range(300):
        found, _ = pieces.some(begin, pieces.effort / 10)
        assert len(found) == 30
        assert sum(each.variable_index < 100 for each in found) >= 3


def test_some_pieces_begin_again_behind_the_last():
    pieces = fingerprints.Pieces([tf.Variable(tf.zeros(8))] * 5)
    of_one = pieces.effort // 5
    every, _ = pieces.some(0, pieces.effort)
    found, effort = pieces.some(3, 2.5 * of_one)
    assert found == [every[3], every[4], every[0]]
    assert effort == 3 * of_one
    # There were more.
    assert pieces.some(7, of_one) == ([every[2]], of_one)


def test_a_variable_without_a_value_has_no_fingerprint():
    empty = resource_variable_ops.UninitializedVariable(
        shape=[3], dtype=tf.float32
    )
    variables = [tf.Variable(1.0), empty]
    assert of_all(variables) is None
    empty.assign([1.0, 2.0, 3.0])
    assert of_all(variables) == of_all(
        variables, [tf.constant(1.0), tf.constant([1.0, 2.0, 3.0])]
    )
