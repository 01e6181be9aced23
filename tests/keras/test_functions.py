"""Sharing variables and objects, on a ring of equal ranks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ring.core import arrays
from keras_ring.core.agreement import require_same
from keras_ring.core.objects import allgather_object, broadcast_object
from keras_ring.keras.model.variables import broadcast_variables
from keras_ring.tensorflow import gathers

DTYPES = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast_of_every_dtype(ring, monkeypatch, dtype):
    received = {}

    def broadcast_group(tensors, root_rank, name, process_set):
        assert root_rank == 1
        return [received.setdefault(name, tensor) for tensor in tensors]

    monkeypatch.setattr(gathers, "broadcast_group", broadcast_group)
    values = tf.cast([[0, 1, 3], [1, 0, 2]], dtype)
    variable = tf.Variable(values)
    broadcast_variables([variable], 1)
    assert variable.numpy().tolist() == values.numpy().tolist()
    (sent,) = received.values()
    assert sent.dtype in (tf.as_dtype(dtype), tf.uint8)


def test_broadcast_takes_the_values_that_come_back(ring, monkeypatch):
    monkeypatch.setattr(
        gathers, "broadcast_group", lambda tensors, *_: [t + 1 for t in tensors]
    )
    variables = [
        keras.Variable([1.0, 2.0], name="k"),
        tf.Variable(3, dtype=tf.uint32),
        keras.Variable(0, dtype="int32", name="scalar"),
    ]
    broadcast_variables(variables, 0)
    assert variables[0].numpy().tolist() == [2.0, 3.0]
    assert int(variables[1]) == 3 + 0x01010101
    assert int(variables[2]) == 1


def test_order_and_names(ring):
    variables = [keras.Variable(1.0, name=n) for n in "ab"]
    broadcast_variables(iter(variables), 0)
    assert ring.names() == [
        "broadcast_variables/digest",
        "broadcast_variables/0",
    ]
    assert ring.calls[-1].count == 2


def test_variables_without_elements(ring):
    values = [np.zeros((0, 3)), np.ones(2)]
    variables = [tf.Variable(value) for value in values]
    broadcast_variables(variables, 0)
    for variable, value in zip(variables, values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_a_variable_of_any_length(ring):
    variable = tf.Variable([1.0, 2.0], shape=[None])
    broadcast_variables([variable], 0)
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_variables_that_cannot_be_sent(ring):
    with pytest.raises(TypeError, match="broadcast_object"):
        broadcast_variables([tf.Variable("text")], 0)


@pytest.mark.parametrize("root_rank", [-1, 2])
def test_roots_that_are_no_ranks(ring, root_rank):
    for function in (broadcast_variables, broadcast_object):
        with pytest.raises(ValueError, match="one of the 2 ranks"):
            function([], root_rank)


def test_one_rank(ring):
    ring.size = 1
    obj = object()
    assert broadcast_object(obj) is obj
    assert allgather_object(obj) == [obj]
    broadcast_variables([tf.Variable(1.0)], 0)
    assert ring.calls == []


def test_objects(ring):
    obj = {"a": [1, 2.5, None], "b": np.arange(3).tolist()}
    assert broadcast_object(obj) is obj
    assert allgather_object(obj, name="mine") == [obj, obj]
    assert ring.names() == [
        "broadcast_object/length",
        "broadcast_object/pickle",
        "mine/pickles",
    ]


def test_an_object_that_does_not_pickle_is_an_error_on_all_ranks(
    ring, monkeypatch
):
    def unpicklable():
        pass

    with pytest.raises((AttributeError, TypeError), match="unpicklable"):
        broadcast_object(unpicklable)
    assert ring.names() == ["broadcast_object/length"]
    with pytest.raises((AttributeError, TypeError), match="unpicklable"):
        allgather_object(unpicklable)
    # The other side: it is told by the length.
    ring.rank = 1
    monkeypatch.setattr(
        arrays, "broadcast_in", lambda *_, **__: np.array(-1, np.int64)
    )
    with pytest.raises(RuntimeError, match="object of rank 0 could not"):
        broadcast_object(None, root_rank=0)
    monkeypatch.setattr(
        arrays,
        "allgather",
        # Of rank 0, and of a rank with an object of no bytes.
        lambda *_, **__: np.array([-1, 0], np.int64).view(np.uint8),
    )
    with pytest.raises(RuntimeError, match="object of rank 0 could not"):
        allgather_object(1)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (["a", "b"], ["a", "c"], "position 1: rank 0 has b, rank 1 has c"),
        (["a"], ["a", "c"], "Rank 0 has 1, rank 1 has 2"),
        (["a"], ["a", "c"], "rank 0 has nothing, rank 1 has c"),
    ],
)
def test_lists_that_differ(ring, monkeypatch, first, second, message):
    monkeypatch.setattr(
        arrays,
        "allgather",
        lambda array, **_: np.concatenate([array, 255 - array]),
    )
    monkeypatch.setattr(
        "keras_ring.core.agreement.allgather_object",
        lambda obj, name, _: [(first, first), (second, second)],
    )
    with pytest.raises(ValueError, match="The things differ") as error:
        require_same("things", "things", first)
    assert message in str(error.value)
