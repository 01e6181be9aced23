"""What single ranks do in test_adasum.py. Imported by every rank."""

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.collectives import collective_model as model

# A float32 without rounding, as Keras has it.
RATE = 2.0**-7


def _drawn(seed, rank, shape, dtype="float32"):
    return model.values(seed, rank, shape, dtype)


def _check(result, arrays, what, **factors):
    """Within rounding of NumPy, and the same bits everywhere."""
    result = np.asarray(result.numpy())
    model.check_reduced(result, model.adasum(arrays, **factors), False, what)
    for other in kr.allgather_object(result.tobytes()):
        assert other == result.tobytes(), what


def values():
    """Every float, alone and in a group, scaled, with zeros, and large."""
    kr.init()
    size = kr.size()
    for dtype in model.FLOATS:
        for shape in ((), (1,), (0, 3), (7, 3), (1 << 18,)):
            arrays = [_drawn(1, r, shape, dtype) for r in range(size)]
            mine = tf.constant(arrays[kr.rank()])
            what = (dtype, shape)
            _check(kr.allreduce(mine, kr.Adasum), arrays, what)
            scaled = kr.allreduce(
                mine, kr.Adasum, prescale_factor=0.3, postscale_factor=-3.0
            )
            _check(scaled, arrays, what, prescale=0.3, postscale=-3.0)
    # A tensor is a vector by itself, whatever is reduced with it.
    shapes = [(3,), (0,), (40, 2), (1,), (1000,)]
    dtypes = ["float32", "float32", "float64", "float16", "float32"]
    groups = [
        [_drawn(i, r, s, d) for r in range(size)]
        for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    groups[0][size - 1] *= 0
    results = kr.grouped_allreduce(
        [tf.constant(arrays[kr.rank()]) for arrays in groups], kr.Adasum
    )
    for i, (result, arrays) in enumerate(zip(results, groups, strict=True)):
        _check(result, arrays, f"member {i}")


def compressed():
    """The same as that of rounded tensors, rounded."""
    kr.init()
    for compression, dtype in (
        (kr.Compression.fp16, "float16"),
        (kr.Compression.bf16, "bfloat16"),
    ):
        arrays = [_drawn(3, rank, (500,)) for rank in range(kr.size())]
        mine = tf.constant(arrays[kr.rank()])
        result = kr.allreduce(mine, kr.Adasum, compression=compression)
        narrow = kr.allreduce(tf.cast(mine, dtype), kr.Adasum)
        assert result.dtype == tf.float32
        np.testing.assert_array_equal(result, tf.cast(narrow, tf.float32))


def not_finite():
    """What is not finite anywhere leaves no finite number in its tensor."""
    kr.init()
    for value in (np.inf, np.nan):
        broken, whole = np.ones([5], "f4"), np.ones([5], "f4")
        if kr.rank() == kr.size() - 1:
            broken[2] = value
        results = kr.grouped_allreduce([broken, whole], kr.Adasum)
        assert kr.size() == 1 or not np.isfinite(results[0]).any()
        np.testing.assert_array_equal(results[1], whole)


def compiled():
    """The bits are those without XLA."""
    kr.init()
    mine = tf.constant(_drawn(5, kr.rank(), (1000,)))
    plain = kr.allreduce(mine, kr.Adasum, name="plain")
    function = tf.function(
        lambda x: kr.allreduce(x, kr.Adasum, name="compiled"),
        jit_compile=True,
    )
    np.testing.assert_array_equal(function(mine), plain)


def training():
    """Through the tape and the optimizer, against NumPy."""
    kr.init()
    rng = np.random.default_rng(0)
    start = rng.normal(size=[4, 2])
    inputs = [rng.normal(size=[3, 4]) for _ in range(kr.size())]
    weights = start
    for _ in range(3):
        gradients = [2 * x.T @ (x @ weights) for x in inputs]
        weights = weights - RATE * np.asarray(model.adasum(gradients).value)

    mine = tf.constant(inputs[kr.rank()])
    taped = tf.Variable(start)
    optimized = tf.Variable(start)
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(RATE), op=kr.Adasum
    )
    plain = keras.optimizers.SGD(RATE)
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((mine @ taped) ** 2)
        tape = kr.DistributedGradientTape(tape, op=kr.Adasum)
        plain.apply(tape.gradient(loss, [taped]), [taped])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((mine @ optimized) ** 2)
        optimizer.apply(tape.gradient(loss, [optimized]), [optimized])
    np.testing.assert_allclose(taped, weights, rtol=1e-10)
    np.testing.assert_allclose(optimized, weights, rtol=1e-10)


def errors():
    """Returns, by what was asked for, the class and the text."""
    kr.init()
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), [3, 2])
    found = {}
    for name, call in {
        "integers": lambda: kr.allreduce(tf.constant([1]), kr.Adasum),
        "parts": lambda: kr.reducescatter(tf.ones([4]), kr.Adasum),
        "slices": lambda: kr.allreduce(slices, kr.Adasum),
        "predivided": lambda: kr.DistributedOptimizer(
            keras.optimizers.SGD(),
            op=kr.Adasum,
            gradient_predivide_factor=2.0,
        ),
    }.items():
        try:
            call()
        except Exception as error:
            found[name] = (type(error).__name__, str(error))
    return found


def run():
    """Does it all; returns `errors()`."""
    values()
    compressed()
    not_finite()
    if kr.xla_built():
        compiled()
    training()
    return errors()
