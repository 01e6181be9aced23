"""What single ranks do in test_compressed_ops.py."""

import functools

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.tensorflow.compression import Compressor

COMPRESSIONS = {"fp16": kr.Compression.fp16, "bf16": kr.Compression.bf16}
NUMPY = {
    kr.Sum: np.add,
    kr.Average: np.add,
    kr.Min: np.minimum,
    kr.Max: np.maximum,
    kr.Product: np.multiply,
}
LINEAR = (kr.Sum, kr.Average)


def rounded(array, name):
    """Rounds once to the format, ties to even; stays what it was in NumPy."""
    if name == "fp16":
        with np.errstate(over="ignore"):
            return array.astype("float16").astype(array.dtype)
    # Numbers that are normal in bfloat16; NumPy has no such type.
    mantissa, exponent = np.frexp(array.astype("float64"))
    nearest = np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8)
    with np.errstate(over="ignore"):
        return nearest.astype("float32").astype(array.dtype)


def host_sum(values, op, name, scale):
    """A host's sum as it travels: fp16 divided, so that it overflows late."""
    total = functools.reduce(NUMPY[op], values)
    scale = scale if name == "fp16" and op in LINEAR else 1
    return rounded(total / np.float32(scale), name) * np.float32(scale)


def reduced(arrays, op, name, prescale=1.0, postscale=1.0, per_host=None):
    """What every rank must get, to the last bit.

    `per_host`: ranks of each of several hosts, a power of two; `None`: one
    host has them all.
    """
    dtype = arrays[0].dtype
    with np.errstate(all="ignore"):
        values = [
            rounded(
                array if prescale == 1.0 else array * dtype.type(prescale), name
            ).astype("float32")
            for array in arrays
        ]
        if per_host:
            values = [
                host_sum(values[i : i + per_host], op, name, per_host)
                for i in range(0, len(values), per_host)
            ]
        total = functools.reduce(NUMPY[op], values)
        if op is kr.Average:
            total = total / np.float32(len(arrays))
        if op in LINEAR and postscale != 1.0:
            total = total * np.float32(postscale)
        result = rounded(total, name).astype(dtype)
        if op not in LINEAR and postscale != 1.0:
            result = result * dtype.type(postscale)
    return result


def uneven(rank, count, dtype):
    """Numbers of many sizes: each order of adding gives other bits."""
    random = np.random.default_rng([rank, count])
    return np.ldexp(
        random.uniform(-2.0, 2.0, count), random.integers(-10, 10, count)
    ).astype(dtype)


def exact(rank, count, dtype):
    """Numbers that are rounded; their sums are exact in float32."""
    random = np.random.default_rng([rank, count, 1])
    signs = random.choice([-1.0, 1.0], count)
    return (signs * random.uniform(1.0, 32.0, count)).astype(dtype)


def assert_same(result, want):
    assert result.dtype == want.dtype
    np.testing.assert_array_equal(result.numpy(), want)


def grouped(mode, tensors, settings):
    """`grouped_allreduce` in one of three modes."""

    def function(*tensors):
        return kr.grouped_allreduce(list(tensors), **settings)

    if mode != "eager":
        function = tf.function(function, jit_compile=mode == "compiled")
    return function(*tensors)


def exactness(mode, values="uneven", per_host=None):
    """Every op, dtype, format and regime against the model."""
    kr.init()
    make = {"uneven": uneven, "exact": exact}[values]
    ops = list(NUMPY) if values == "uneven" else [kr.Sum, kr.Average, kr.Max]
    scales = [(1.0, 1.0), (0.3, 0.7)] if values == "uneven" else [(1.0, 1.0)]
    # In one shot, in two, in several chunks.
    counts = [1, 7, 1000, 200_001]
    checked = 0
    for dtype in ("float32", "float64"):
        everyone = [
            [make(r, count, dtype) for r in range(kr.size())]
            for count in counts
        ]
        mine = [tf.constant(arrays[kr.rank()]) for arrays in everyone]
        for op in ops:
            for name, compression in COMPRESSIONS.items():
                for prescale, postscale in scales:
                    settings = {
                        "op": op,
                        "name": "x",
                        "prescale_factor": prescale,
                        "postscale_factor": postscale,
                        "compression": compression,
                    }
                    for result, arrays in zip(
                        grouped(mode, mine, settings), everyone, strict=True
                    ):
                        assert_same(
                            result,
                            reduced(
                                arrays, op, name, prescale, postscale, per_host
                            ),
                        )
                        checked += 1
    return checked


def scattered(mode):
    """Reducescatter, and its gradient: what is gathered is rounded, too."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    rows = 3 * size + 1
    arrays = [uneven(r, rows * 101, "float64") for r in range(size)]
    own = slice(0, 4) if rank == 0 else slice(3 * rank + 1, 3 * rank + 4)
    weights = [uneven(r, 4 * 101, "float64") for r in range(size)]

    def function(x, w):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = kr.reducescatter(
                x,
                kr.Average,
                name="r",
                prescale_factor=0.3,
                compression=kr.Compression.fp16,
            )
            loss = tf.reduce_sum(y * w[: len(y)])
        return y, tape.gradient(loss, x)

    if mode != "eager":
        function = tf.function(function, jit_compile=mode == "compiled")
    y, gradient = function(
        tf.constant(arrays[rank].reshape(rows, 101)),
        tf.constant(weights[rank].reshape(4, 101)),
    )
    total = reduced(arrays, kr.Average, "fp16", 0.3).reshape(rows, 101)
    assert_same(y, total[own])
    gathered = np.concatenate(
        [w.reshape(4, 101)[: 3 + (r == 0)] for r, w in enumerate(weights)]
    )
    # One product of factors may be two under XLA.
    np.testing.assert_allclose(
        gradient.numpy(), rounded(gathered, "fp16") * 0.3 / size, rtol=1e-15
    )


def special_values(mode, per_host=None):
    """NaN, infinity, overflow before and in the sum, and what is too small."""
    kr.init()
    rank, last = kr.rank(), kr.size() - 1
    arrays = [
        np.array(
            [
                np.nan if r == last else 1.0,
                np.inf if r == last else 1.0,
                -7e4 if r == last else 1.0,
                4e4,
                1e-9,
                np.inf if r == last else -np.inf,
                -0.0,
            ],
            "float32",
        )
        for r in range(kr.size())
    ]
    for name, compression in COMPRESSIONS.items():
        for op in (kr.Sum, kr.Average):
            settings = {"op": op, "name": "s", "compression": compression}
            (result,) = grouped(mode, [tf.constant(arrays[rank])], settings)
            want = reduced(arrays, op, name, per_host=per_host)
            np.testing.assert_array_equal(result.numpy(), want)
            assert np.isnan(want[[0, 5]]).all() and np.isposinf(want[1])
            if name == "fp16":
                assert np.isneginf(want[2]) and want[4] == 0.0
                assert np.isinf(want[3]) == (op is kr.Sum)


def graph_ops(compiles):
    """The types of the ops in a traced function, and those that matter."""
    kr.init()

    def function(x, y):
        results = kr.grouped_allreduce(
            [x, y], name="x", compression=kr.Compression.fp16
        )
        z = kr.allreduce(x, kr.Max, name="m", compression=kr.Compression.bf16)
        return *results, z

    traced = tf.function(function, jit_compile=compiles).get_concrete_function(
        tf.TensorSpec([3]), tf.TensorSpec([4], tf.float64)
    )
    return sorted({op.type for op in traced.graph.get_operations()})


def others_pass():
    """Integers and 16-bit floats are left as they are, mixed groups too."""
    kr.init()
    n = kr.size()
    tensors = [
        tf.constant([1, 2**30], tf.int64),
        tf.constant([3], tf.uint8),
        tf.constant([2049.0]),
        tf.constant([0.5], tf.float16),
        tf.constant([257.0], tf.float64),
        tf.constant([1.5], tf.bfloat16),
    ]
    for compression in COMPRESSIONS.values():
        results = kr.grouped_allreduce(
            tensors, kr.Max, name="mixed", compression=compression
        )
        assert [r.dtype for r in results] == [t.dtype for t in tensors]
        got = [r.numpy().astype("float64").tolist() for r in results]
        fp16 = compression is kr.Compression.fp16
        assert got == [
            [1, 2**30],
            [3],
            [2048.0],
            [0.5],
            [257.0 if fp16 else 256.0],
            [1.5],
        ]
    return n


def gradients(mode):
    """The cotangent is reduced in the same way, and keeps its dtype."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    weights = [uneven(r, 50, "float64") for r in range(size)]

    def linear(x, w):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = kr.allreduce(
                x,
                kr.Average,
                name="x",
                prescale_factor=0.5,
                compression=kr.Compression.bf16,
            )
            loss = tf.reduce_sum(y * w)
        return tape.gradient(loss, x)

    # They differ by what bfloat16 does not see, so that all hold the maximum.
    def maximum(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = kr.allreduce(
                x, kr.Max, name="m", compression=kr.Compression.bf16
            )
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    if mode != "eager":
        linear = tf.function(linear, jit_compile=mode == "compiled")
        maximum = tf.function(maximum, jit_compile=mode == "compiled")
    result = linear(tf.ones([50], tf.float64), tf.constant(weights[rank]))
    assert_same(result, reduced(weights, kr.Average, "bf16", 0.5))
    result = maximum(tf.constant([1.0 + rank / 1024, 1.0 - rank]))
    want = [1.0, float(size) if rank == 0 else 0.0]
    assert_same(result, np.array(want, "float32"))


class Doubled:
    """Somebody's own: travels as twice the value."""

    def compress(self, tensor):
        return tensor * 2, "doubled"

    def decompress(self, tensor, context):
        assert context == "doubled"
        return tensor / 2


class Floored(Compressor):
    """One that derives from ours."""

    def compress(self, tensor):
        return tf.floor(tensor), None


def own_compressors():
    """Objects with the two methods, and formats that are no native ones."""
    kr.init()
    n = kr.size()
    x = tf.constant([1.75, 2.5], tf.float64)
    for compression, want in [
        (Doubled(), [1.75 * n, 2.5 * n]),
        (Floored("float16"), [1.0 * n, 2.0 * n]),
        (Compressor("float32"), [1.75 * n, 2.5 * n]),
    ]:
        result = kr.allreduce(x, kr.Sum, name="own", compression=compression)
        assert_same(result, np.array(want))


def mismatch():
    """The text of the error where one rank does not compress."""
    kr.init()
    compression = [kr.Compression.fp16, kr.Compression.fp16, None][kr.rank()]
    try:
        kr.allreduce(tf.ones([3]), name="g", compression=compression)
    except tf.errors.FailedPreconditionError as error:
        return error.message
    return None


def fit(name, **options):
    """A step of `fit` whose gradients have to be rounded.

    All numbers are whole, so that whatever computes the gradients gets the
    same ones.
    """
    kr.init()
    rank, size = kr.rank(), kr.size()
    x = np.array([[3.0, 50.0, 7.0]], "float32")
    y = [np.array([[-1001.0 * (r + 1)]], "float32") for r in range(size)]
    model = keras.Sequential(
        [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    model.build((1, 3))
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(1.0), compression=COMPRESSIONS[name]
    )
    model.compile(optimizer, keras.losses.MeanSquaredError(), **options)
    model.fit(x, y[rank], batch_size=1, epochs=1, verbose=0)
    gradients = [2 * (np.sum(x) - y_of_rank[0]) * x[0] for y_of_rank in y]
    mean = reduced(gradients, kr.Average, name)
    assert (mean != np.mean(gradients, axis=0)).any()
    want = np.ones(3, "float32") - mean
    np.testing.assert_array_equal(model.get_weights()[0][:, 0], want)


def several(calls):
    """Runs (function, *arguments) one after another; returns the results."""
    return [globals()[name](*arguments) for name, *arguments in calls]


def fits():
    """`fit` in each of Keras' ways to run a step."""
    for name in COMPRESSIONS:
        fit(name, jit_compile=False)
        fit(name, run_eagerly=True)
        if kr.xla_built():
            fit(name, jit_compile=True)
