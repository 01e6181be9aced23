"""What collectives must give, in NumPy: all ranks' tensors in, all results out.

A tensor of the group is a list, by rank. Sums are made in the order of the
ranks and in the type in which they are made on the wire, so that through shared
memory, where the ranks keep to that order too, they must agree bit by bit.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "uint16", "int32", "int64"]
REDUCIBLE = FLOATS + INTEGERS
MOVABLE = [*REDUCIBLE, "bool", "complex64", "complex128"]
# Element by element.
REDUCE_OPS = ["Average", "Sum", "Min", "Max", "Product"]


def numpy_type(dtype):
    return np.dtype(tf.as_dtype(dtype).as_numpy_dtype)


def values(seed, rank, shape, dtype, reduce_op=None):
    """Values of one rank that show what is done with them."""
    rng = np.random.default_rng([seed, rank])
    count = int(np.prod(shape, dtype=int))
    if dtype == "bool":
        drawn = rng.integers(0, 2, count)
    elif dtype in INTEGERS:
        low, high = (-9, 10) if dtype[0] == "i" else (0, 20)
        drawn = rng.integers(low, high, count)
    elif reduce_op == "Product":
        # Around 1, with a few zeros.
        drawn = rng.uniform(0.5, 1.5, count) * (rng.random(count) > 0.1)
    else:
        drawn = rng.normal(size=count) * 2.0 ** rng.integers(-3, 4, count)
    if dtype.startswith("complex"):
        drawn = drawn + 1j * rng.normal(size=count)
    return np.asarray(drawn).astype(numpy_type(dtype)).reshape(shape)


@dataclasses.dataclass(frozen=True)
class Reduced:
    """A result of a reduction, and how far another order may lead from it."""

    value: np.ndarray
    tolerance: np.ndarray


def reduce(arrays, op, prescale=1.0, postscale=1.0):
    """Reduces the ranks' arrays."""
    if op == "Adasum":
        return adasum(arrays, prescale, postscale)
    dtype = arrays[0].dtype
    name = tf.as_dtype(dtype).name
    size = len(arrays)
    if name in INTEGERS:
        return Reduced(_reduce_integers(arrays, op), np.zeros(()))
    wire = np.float64 if name == "float64" else np.float32
    parts = [array.astype(wire) for array in arrays]
    if prescale != 1.0:
        parts = [part * wire(prescale) for part in parts]
    function = {
        "Average": np.add,
        "Sum": np.add,
        "Min": np.minimum,
        "Max": np.maximum,
        "Product": np.multiply,
    }[op]
    total = functools.reduce(function, parts)
    # Each of size - 1 steps rounds a number no larger than this.
    bound = {"Average": np.add, "Sum": np.add, "Product": np.multiply}.get(op)
    error = np.zeros_like(total)
    if bound is not None:
        largest = functools.reduce(bound, [np.abs(part) for part in parts])
        error = 2 * size * np.finfo(wire).eps * largest
    if op == "Average":
        # Of a power of two the inverse is exact.
        power = size & (size - 1) == 0
        total = total * wire(1 / size) if power else total / wire(size)
        error = error / size
    if postscale != 1.0:
        total = total * wire(postscale)
        error = error * abs(postscale)
    value = total.astype(dtype)
    if dtype.itemsize == 2 and bound is not None:
        # Another last bit of the wire may round the other way.
        digits = 10 if name == "float16" else 7
        error = error + np.abs(total) * 2.0**-digits + 2.0**-24
    return Reduced(value, error)


def adasum(arrays, prescale=1.0, postscale=1.0):
    """Reduces the ranks' arrays by Adasum."""
    dtype = arrays[0].dtype
    wide = np.longdouble if dtype == np.float64 else np.float64
    eps = np.finfo(np.float64 if dtype == np.float64 else np.float32).eps
    scaled = [array.astype(wide) * wide(prescale) for array in arrays]
    vector, error = adasum_of(scaled, eps)
    vector = vector * wide(postscale)
    # To the type of the sum, by the factor, to the type of the tensor.
    stored = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(
        tf.as_dtype(dtype).name, eps
    )
    tolerance = 2 * abs(postscale) * error + 2 * (stored + eps) * np.abs(vector)
    return Reduced(
        vector.astype(dtype), tolerance + 2.0**-24 * (dtype.itemsize == 2)
    )


def adasum_of(vectors, eps=0.0):
    """Combines vectors up a tree of neighbours.

    Returns:
        The result, and how far (in the norm) it may be from that of arithmetic
        which rounds by `eps`.
    """
    nodes = [(x, eps * np.sqrt(np.abs(np.sum(x * x)))) for x in vectors]
    while len(nodes) > 1:
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        combined = [_adasum_of_two(a, b, eps) for a, b in pairs]
        nodes = combined + nodes[2 * len(combined) :]
    return nodes[0]


def _adasum_of_two(first, second, eps):
    (a, error_a), (b, error_b) = first, second
    ab, aa, bb = np.sum(a * b), np.sum(a * a), np.sum(b * b)
    of_a = 1 - ab / (2 * aa) if aa else 1
    of_b = 1 - ab / (2 * bb) if bb else 1
    norm_a, norm_b = np.sqrt(np.abs(aa)), np.sqrt(np.abs(bb))
    error = abs(of_a) * (error_a + eps * norm_a)
    error += abs(of_b) * (error_b + eps * norm_b)
    # What the errors do to a factor, times what it multiplies.
    for own, own_error, other, other_error in (
        (norm_a, error_a, norm_b, error_b),
        (norm_b, error_b, norm_a, error_a),
    ):
        if own_error > own / 4:
            return of_a * a + of_b * b, np.inf  # nothing but rounding
        if own:
            error += 2 * other * own_error / own + other_error
    return of_a * a + of_b * b, error


def _reduce_integers(arrays, op):
    dtype = arrays[0].dtype
    if op == "Average":
        total = sum(array.astype(np.int64) for array in arrays)
        return np.floor_divide(total, len(arrays)).astype(dtype)
    function = {
        "Sum": np.add,
        "Min": np.minimum,
        "Max": np.maximum,
        "Product": np.multiply,
    }[op]
    return functools.reduce(function, arrays)


def scattered_rows(rows, size):
    """How many rows each rank gets."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def rows_of(array, rank, size):
    """The rows of `array` that a reducescatter gives to `rank`."""
    counts = scattered_rows(len(array), size)
    begin = sum(counts[:rank])
    return array[begin : begin + counts[rank]]


def alltoall(arrays, splits):
    """Returns, by rank, what it receives and from whom how much."""
    size = len(arrays)
    blocks = [
        np.split(array, np.cumsum(row)[:-1])
        for array, row in zip(arrays, splits, strict=True)
    ]
    return [
        (
            np.concatenate([blocks[source][rank] for source in range(size)]),
            [splits[source][rank] for source in range(size)],
        )
        for rank in range(size)
    ]


def check(result, want, what):
    """Compares bit by bit, but for the sign of zeros and the bits of NaNs."""
    result = np.asarray(result)
    assert result.dtype == want.dtype, (what, result.dtype, want.dtype)
    assert result.shape == want.shape, (what, result.shape, want.shape)
    wide = _comparable(want)
    np.testing.assert_array_equal(_comparable(result), wide, str(what))


def check_reduced(result, want, exact, what):
    """Compares with a `Reduced`, within its tolerance unless `exact`."""
    result = np.asarray(result)
    if exact:
        return check(result, want.value, what)
    assert result.dtype == want.value.dtype, (what, result.dtype)
    assert result.shape == want.value.shape, (what, result.shape)
    difference = np.abs(
        result.astype(np.float64) - want.value.astype(np.float64)
    )
    assert (difference <= want.tolerance).all(), (what, result, want)


def _comparable(array):
    """bfloat16 is no type that all of NumPy can handle."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array
