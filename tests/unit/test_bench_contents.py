"""A wrong result is found, wherever it is."""

import dataclasses

import numpy as np
import pytest

from keras_ring.bench import contents
from keras_ring.bench.case import Case
from keras_ring.bench.contents import WrongResultError

OPS = ("Average", "Sum", "Min", "Max", "Product")
NUMPY = {
    "Average": np.mean,
    "Sum": np.sum,
    "Min": np.min,
    "Max": np.max,
    "Product": np.prod,
}


def make(op="Sum", dtype="float32", size=3, shapes=((100,), (7, 30), ())):
    """Returns a case, right results made anew by NumPy, and the expected."""
    case = Case(name="it", shapes=shapes, dtype=dtype, op=op)
    results = []
    for index, shape in enumerate(shapes):
        ranks = [
            np.resize(contents.period(op, index, rank), shape)
            for rank in range(size)
        ]
        result = NUMPY[op](np.stack(ranks), axis=0)
        if "float" not in dtype:
            result = np.floor(result)
        results.append(result.astype(dtype))
    expected = [
        contents.expected_period(op, index, size)
        for index in range(len(shapes))
    ]
    return case, results, expected


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32"])
@pytest.mark.parametrize("size", [1, 3])
def test_right_results_pass(op, dtype, size):
    contents.check(*make(op, dtype, size))


@pytest.mark.parametrize("op", OPS)
def test_one_ranks_own_tensor_does_not_pass(op):
    case, results, expected = make(op, size=3)
    right = results[0]
    results[0] = np.resize(contents.period(op, 0, 0), (100,)).astype("float32")
    if op == "Min":
        # Rank 0 holds the least of each; the others must not pass.
        results[0] = np.resize(contents.period(op, 0, 1), (100,)).astype(
            "float32"
        )
    assert (results[0] != right).any()
    with pytest.raises(WrongResultError, match="tensor 0 of 3"):
        contents.check(case, results, expected)


def test_the_message_says_where():
    case, results, expected = make(size=2)
    results[1][3, 29] += 1
    with pytest.raises(WrongResultError) as wrong:
        contents.check(case, results, expected)
    assert "it: tensor 1 of 3 is wrong in 1 of 210 elements" in str(wrong.value)
    right = results[1][3, 29] - 1
    assert f"element (3, 29) is {right + 1}, not {right}" in str(wrong.value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32"])
def test_a_little_is_wrong_too(dtype):
    case, results, expected = make("Average", dtype)
    value = results[0][5]
    results[0][5] = value * (1 + 1e-2) if "float16" in dtype else value * 1.01
    if dtype == "int32":
        results[0][5] = value + 1
    with pytest.raises(WrongResultError):
        contents.check(case, results, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_wrong(value):
    case, results, expected = make()
    results[2] = np.full((), value, "float32")
    with pytest.raises(WrongResultError, match="tensor 2"):
        contents.check(case, results, expected)


def test_a_shifted_part_is_wrong():
    """As if one rank's chunk had landed where another's belongs."""
    case, results, expected = make(shapes=((4096,),))
    results[0][1024:2048] = results[0][:1024].copy()
    with pytest.raises(WrongResultError):
        contents.check(case, results, expected)


def test_shapes_and_numbers_of_results():
    case, results, expected = make()
    with pytest.raises(WrongResultError, match="2 results for 3 tensors"):
        contents.check(case, results[:2], expected)
    results[1] = results[1].reshape(-1)
    with pytest.raises(WrongResultError, match=r"shape \(210,\)"):
        contents.check(case, results, expected)


@pytest.mark.parametrize("compression", ["none", "fp16", "bf16"])
def test_rounding_on_the_way_is_right(compression):
    # Fifths are not exact.
    case, results, expected = make("Average", "float32", size=5)
    case = dataclasses.replace(case, compression=compression)
    results[0] = results[0].astype("float16").astype("float32")
    if compression == "none":
        with pytest.raises(WrongResultError):
            contents.check(case, results, expected)
    else:
        contents.check(case, results, expected)
