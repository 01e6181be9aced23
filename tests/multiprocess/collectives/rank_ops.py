"""What single ranks do in test_ops.py. Imported by every rank."""

import numpy as np
import tensorflow as tf

import keras_ring as kr

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "uint16", "int32", "int64"]
OTHERS = ["bool", "complex64", "complex128"]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (1001,), (2, 0, 3)]


def values(rank, shape, dtype):
    """Small whole numbers, exact in every dtype and sum."""
    count = int(np.prod(shape, dtype=int))
    numbers = (np.arange(count).reshape(shape) * 3 + rank) % 5 + 1
    return tf.cast(tf.constant(numbers, tf.int32), dtype)


def as_numpy(tensor):
    """bfloat16 has no NumPy type that all of NumPy can handle."""
    array = tensor.numpy()
    return array.astype("float32") if tensor.dtype == tf.bfloat16 else array


def reference(op, dtype, shape, size):
    arrays = [as_numpy(values(r, shape, dtype)) for r in range(size)]
    if op is kr.Average:
        total = np.sum([a.astype("float64") for a in arrays], axis=0)
        mean = total / size
        if dtype in INTEGERS:
            mean = np.floor(mean)
        return np.asarray(tf.cast(tf.constant(mean), dtype).numpy()).astype(
            arrays[0].dtype
        )
    function = {
        kr.Sum: np.sum,
        kr.Min: np.min,
        kr.Max: np.max,
        kr.Product: np.prod,
    }[op]
    result = function(np.stack(arrays), axis=0)
    return result.astype(arrays[0].dtype)


def in_mode(mode, function, *tensors):
    """Calls `function` eagerly, in a tf.function, compiled or a v1 graph."""
    if mode == "eager":
        return function(*tensors)
    if mode in ("function", "compiled"):
        return tf.function(function, jit_compile=mode == "compiled")(*tensors)
    graph = tf.Graph()
    with graph.as_default():
        places = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in tensors]
        results = function(*places)
        with tf.compat.v1.Session(graph=graph) as session:
            feed = {
                place: tensor.numpy()
                for place, tensor in zip(places, tensors, strict=True)
            }
            arrays = session.run(results, feed)
    return tf.nest.map_structure(tf.constant, arrays)


def allreduce_table(mode):
    """All dtypes, ops and shapes; returns the number of cases."""
    kr.init()
    cases = 0
    for dtype in FLOATS + INTEGERS:
        # Adasum is no sum of elements; it has tests of its own.
        for op in (kr.Average, kr.Sum, kr.Min, kr.Max, kr.Product):
            tensors = [values(kr.rank(), shape, dtype) for shape in SHAPES]

            def function(*tensors, op=op, dtype=dtype):
                return [
                    kr.allreduce(t, op, name=f"{dtype}.{op.name}.{i}")
                    for i, t in enumerate(tensors)
                ]

            results = in_mode(mode, function, *tensors)
            for shape, result in zip(SHAPES, results, strict=True):
                assert result.dtype == dtype
                want = reference(op, dtype, shape, kr.size())
                np.testing.assert_array_equal(
                    as_numpy(result), want, f"{dtype} {op} {shape}"
                )
                cases += 1
    return cases


def gathers(mode):
    """Allgather of all dtypes."""
    kr.init()
    for dtype in FLOATS + INTEGERS + OTHERS:
        parts = [values(r, (r % 3, 2), dtype) for r in range(kr.size())]

        def function(part, dtype=dtype):
            return kr.allgather(part, name=f"g.{dtype}")

        gathered = in_mode(mode, function, parts[kr.rank()])
        np.testing.assert_array_equal(
            as_numpy(gathered), as_numpy(tf.concat(parts, 0)), dtype
        )


def broadcasts(mode):
    """Broadcast of all dtypes."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    for dtype in FLOATS + INTEGERS + OTHERS:
        roots = [values(r + 10, (4, 3), dtype) for r in range(size)]

        def function(own, dtype=dtype):
            return [
                kr.broadcast(own, root, name=f"b.{dtype}.{root}")
                for root in range(size)
            ]

        received = in_mode(mode, function, roots[rank])
        for root in range(size):
            np.testing.assert_array_equal(
                as_numpy(received[root]), as_numpy(roots[root]), dtype
            )


def several(calls):
    """Calls functions of this module by name: one start for many cases."""
    return [globals()[name](*args) for name, *args in calls]


def grouped(mode):
    kr.init()
    before = kr.metrics()["entries"]
    dtypes = ["float32", "int64", "float16", "float32", "uint8"]
    tensors = [values(kr.rank(), (3 + i,), d) for i, d in enumerate(dtypes)]
    results = in_mode(
        mode,
        lambda *ts: kr.grouped_allreduce(list(ts), kr.Sum, name="group"),
        *tensors,
    )
    for i, (dtype, result) in enumerate(zip(dtypes, results, strict=True)):
        np.testing.assert_array_equal(
            result.numpy(), reference(kr.Sum, dtype, (3 + i,), kr.size())
        )
    assert kr.grouped_allreduce([]) == []
    kr.barrier()  # so that the count is there
    return kr.metrics()["entries"] - before - 1


def scales_and_compression():
    kr.init()
    x = tf.constant([1.5, 3.0], tf.float64) * (kr.rank() + 1)
    total = kr.size() * (kr.size() + 1) / 2
    y = kr.allreduce(
        x, kr.Sum, name="x", prescale_factor=0.1, postscale_factor=7.0
    )
    np.testing.assert_allclose(
        y, np.array([1.5, 3.0]) * total * 0.1 * 7.0, rtol=1e-14
    )
    largest = kr.allreduce(x, kr.Max, name="m", prescale_factor=-1.0)
    np.testing.assert_array_equal(largest, [-1.5, -3.0])
    # A tenth of 64 bits: that of 32 is another.
    largest = kr.allreduce(x, kr.Max, name="m", postscale_factor=0.1)
    np.testing.assert_array_equal(
        largest, np.array([1.5, 3.0]) * kr.size() * 0.1
    )
    slices = tf.IndexedSlices(x, tf.constant([0, 1]), tf.constant([2]))
    summed = kr.allreduce(slices, kr.Sum, name="s", postscale_factor=0.1)
    np.testing.assert_array_equal(
        summed.values, np.array([1.5, 3.0]) * total * 0.1
    )
    for compression in (kr.Compression.fp16, kr.Compression.bf16):
        y = kr.allreduce(x, kr.Sum, name="c", compression=compression)
        assert y.dtype == tf.float64
        np.testing.assert_allclose(
            y, np.array([1.5, 3.0]) * total, rtol=2.0**-7
        )
    # Three float16 values whose sum in float16 would lose the small ones.
    small = 2048.0 if kr.rank() == 0 else 1.0
    y = kr.allreduce(tf.constant([small], tf.float16), kr.Sum, name="h")
    want = np.float16(np.float32(2048) + np.float32(kr.size() - 1))
    assert y.numpy()[0] == want, y


def gradients(mode):
    """Against what the group's total loss gives."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    x = values(rank, (6,), "float64")
    everyone = np.stack(
        [values(r, (6,), "float64").numpy() for r in range(size)]
    )
    weights = np.arange(1.0, 7.0) * (rank + 1)
    all_weights = np.arange(1.0, 7.0) * sum(range(1, size + 1))

    def gradient_of(function):
        def compute(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(function(x) * weights)
            return tape.gradient(loss, x)

        return in_mode(mode, compute, x).numpy()

    def check(function, want):
        np.testing.assert_allclose(gradient_of(function), want, rtol=1e-12)

    check(lambda x: kr.allreduce(x, kr.Sum, name="sum"), all_weights)
    check(
        lambda x: kr.allreduce(
            x, kr.Average, name="avg", prescale_factor=3.0, postscale_factor=5.0
        ),
        all_weights * 15.0 / size,
    )
    for op, extremum in ((kr.Min, everyone.min(0)), (kr.Max, everyone.max(0))):
        holders = (everyone == extremum).sum(0)
        check(
            lambda x, op=op: kr.allreduce(x, op, name=op.name),
            all_weights * (everyone[rank] == extremum) / holders,
        )
    check(
        lambda x: kr.broadcast(x, size - 1, name="b"),
        all_weights if rank == size - 1 else np.zeros(6),
    )

    # A tape used twice, in one graph.
    def twice(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.reduce_sum(kr.allreduce(x, kr.Sum, name="twice") ** 2)
        return tape.gradient(y, x) + tape.gradient(y, x)

    np.testing.assert_allclose(
        in_mode(mode, twice, x).numpy(), 4.0 * size * everyone.sum(0)
    )
    if mode == "compiled":
        return  # the others are allgathers

    check(
        lambda x: kr.allreduce(x, kr.Product, name="prod"),
        all_weights * np.prod(np.delete(everyone, rank, 0), axis=0),
    )

    # Allgather: this rank's rows of the sum of all ranks' gradients.
    rows = rank + 1
    total_rows = size * (size + 1) // 2
    part = tf.ones([rows, 2], tf.float64)
    factors = np.arange(total_rows * 2.0).reshape(-1, 2)

    def gather_gradient(part):
        with tf.GradientTape() as tape:
            tape.watch(part)
            gathered = kr.allgather(part, name="g")
            loss = tf.reduce_sum(gathered * factors * (rank + 1.0))
        return tape.gradient(loss, part)

    begin = rank * (rank + 1) // 2
    np.testing.assert_allclose(
        in_mode(mode, gather_gradient, part).numpy(),
        factors[begin : begin + rows] * total_rows,
    )


def sparse():
    kr.init()
    rank, size = kr.rank(), kr.size()
    # Index 1 twice on each rank; nothing at all on rank 0.
    indices = [] if rank == 0 else [1, rank + 1, 1]
    slices = tf.IndexedSlices(
        tf.ones([len(indices), 2]),
        tf.constant(indices, tf.int64),
        tf.constant([size + 2, 2], tf.int64),
    )
    result = kr.allreduce(slices, kr.Sum, name="sparse")
    assert isinstance(result, tf.IndexedSlices)
    dense = np.zeros([size + 2, 2], "float32")
    for r in range(1, size):
        dense[1] += 2
        dense[r + 1] += 1
    np.testing.assert_array_equal(tf.convert_to_tensor(result), dense)


def scaled_integers(mode):
    """As in NumPy: each product in float64, and what is behind it dropped."""
    kr.init()
    size, rank = kr.size(), kr.rank()
    for dtype in INTEGERS:
        for op in (kr.Sum, kr.Average, kr.Max):

            def function(tensor, dtype=dtype, op=op):
                settings = {"prescale_factor": 1.7, "postscale_factor": 0.3}
                name = f"scaled.{dtype}.{op.name}"
                one = kr.allreduce(tensor, op, name=name, **settings)
                # Of a mixed group, too, and of the rows of one rank.
                other, number = kr.grouped_allreduce(
                    [tensor, tf.constant(3.0)],
                    op,
                    name=f"{name}.group",
                    **settings,
                )
                rows = kr.reducescatter(
                    tensor, op, name=f"{name}.rows", **settings
                )
                return one, other, number, rows

            arrays = [as_numpy(values(r, (7,), dtype)) for r in range(size)]
            arrays = [(1.7 * a.astype("f8")).astype(dtype) for a in arrays]
            total = arrays[0]
            for array in arrays[1:]:
                total = (
                    np.maximum(total, array) if op is kr.Max else total + array
                )
            if op is kr.Average:
                total = total // size
            wanted = (0.3 * total.astype("f8")).astype(dtype)
            one, other, number, rows = in_mode(
                mode, function, values(rank, (7,), dtype)
            )
            for result in (one, other):
                np.testing.assert_array_equal(as_numpy(result), wanted, dtype)
            begin = sum(7 // size + (r < 7 % size) for r in range(rank))
            np.testing.assert_array_equal(
                as_numpy(rows), wanted[begin : begin + len(rows)], dtype
            )
            factor = size if op is kr.Sum else 1
            np.testing.assert_allclose(number, 3.0 * 1.7 * 0.3 * factor, 1e-6)


def grouped_slices():
    """Slices stay slices, in a group as alone, with a dense shape or not."""
    kr.init()
    size, rank = kr.size(), kr.rank()
    for dense_shape in ([1000, 2], None):
        for dtype in ("float32", "int32"):
            slices = tf.IndexedSlices(
                tf.ones([2, 2], dtype) * 3,
                tf.constant([rank, rank + 1]),
                None if dense_shape is None else tf.constant(dense_shape),
            )
            tensor = tf.constant([1.0])

            @tf.function
            def function(slices=slices, tensor=tensor):
                return kr.grouped_allreduce(
                    [slices, tensor, slices],
                    kr.Sum,
                    prescale_factor=0.5,
                    postscale_factor=1.5,
                )

            first, dense, second = function()
            np.testing.assert_allclose(dense, [0.75 * size])
            # What a row of ones and a half is, to begin with.
            one = 1.5 if dtype == "float32" else 1
            wanted = [one] + [2 * one] * (size - 1) + [one]
            wanted = (1.5 * np.array(wanted)).astype(dtype)
            for result in (first, second):
                assert isinstance(result, tf.IndexedSlices)
                assert (result.dense_shape is None) == (dense_shape is None)
                order = np.argsort(result.indices)
                rows = result.values.numpy()[order]
                assert rows.dtype == dtype
                np.testing.assert_array_equal(rows, np.stack([wanted] * 2, 1))
    mean = kr.allreduce(slices)
    assert mean.values.dtype == "int32"
    assert mean.values.numpy().max() == 2 * 3 // size
    words = tf.IndexedSlices(tf.constant([["a"]]), tf.constant([0]))
    for function in (kr.allreduce, lambda s: kr.grouped_allreduce([s])):
        try:
            function(words)
        except TypeError as error:
            assert "no Average of string tensors" in str(error)
        else:
            raise AssertionError("words were reduced")


def random_orders(seeds, first_seed):
    """40 tensors at once, handed in by a pool of threads in random order."""
    import concurrent.futures
    import random

    kr.init()
    rank, size = kr.rank(), kr.size()
    shapes = [(i * 7 % 50,) for i in range(40)]
    tensors = [
        tf.fill(shape, float((rank + 1) * i)) for i, shape in enumerate(shapes)
    ]
    wants = [
        np.full(shape, i * size * (size + 1) / 2, "float32")
        for i, shape in enumerate(shapes)
    ]

    def reduce(i):
        return i, kr.allreduce(tensors[i], kr.Sum, name=f"t{i}").numpy()

    with concurrent.futures.ThreadPoolExecutor(len(tensors)) as pool:
        for seed in range(first_seed, first_seed + seeds):
            order = list(range(len(tensors)))
            random.Random(seed * 1000 + rank).shuffle(order)
            for i, result in pool.map(reduce, order):
                np.testing.assert_array_equal(
                    result, wants[i], f"seed {seed}, tensor {i}"
                )
    return kr.metrics()
