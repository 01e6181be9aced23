"""What single ranks do in test_gradients.py: gradients against NumPy.

Each rank has cotangents of its own for its results. The gradient of the sum of
all ranks' losses is then what NumPy makes of all ranks' inputs and cotangents.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.collectives import collective_model as model
from tests.multiprocess.collectives import collective_table as table
from tests.multiprocess.collectives import rank_group
from tests.multiprocess.collectives.rank_collectives import in_mode


@dataclasses.dataclass(frozen=True)
class Variant:
    """A collective whose gradient is checked.

    Args:
        call: Takes tensors and a name, returns as many tensors.
        inputs: By tensor, then by rank: arrays.
        cotangents: Likewise, of the results.
        gradients: Likewise, as they must be on this rank; `None` where an
            input has none.
    """

    call: Callable
    inputs: list
    cotangents: list
    gradients: list


def _drawn(seed, rank, shape, dtype="float64"):
    return model.values(seed, rank, shape, dtype)


def _through(op, inputs, total, size):
    """Takes the summed cotangents back through a reduction."""
    rank = rank_group.rank()
    if op == "Sum":
        return total
    if op == "Average":
        return total / size
    stacked = np.stack(inputs)
    if op == "Adasum":
        return _through_adasum(stacked, total)
    if op == "Product":
        return total * np.prod(np.delete(stacked, rank, 0), axis=0)
    extremum = stacked.min(0) if op == "Min" else stacked.max(0)
    holds = stacked == extremum
    return total * holds[rank] / holds.sum(0)


def _through_adasum(stacked, total):
    """By steps along the imaginary axis, from which nothing is subtracted."""
    step = np.longdouble(2.0) ** -100
    stacked = stacked.astype(np.clongdouble)
    gradient = np.zeros_like(total)
    for index in np.ndindex(gradient.shape):
        moved = stacked.copy()
        moved[rank_group.rank()][index] += 1j * step
        result, _ = model.adasum_of(list(moved))
        gradient[index] = np.sum(result.imag * total) / step
    return gradient


def _reduction(kind, op, prescale=1.0, postscale=1.0):
    size = rank_group.size()
    # Few values, so that ranks share the extremum, and some are zero.
    inputs = [
        np.random.default_rng([3, rank]).integers(-1, 3, [5, 2]).astype("f8")
        for rank in range(size)
    ]
    if kind == "allreduce":
        cotangents = [_drawn(4, rank, (5, 2)) for rank in range(size)]
        total = sum(cotangents)
    else:
        rows = model.scattered_rows(5, size)
        cotangents = [_drawn(4, r, (rows[r], 2)) for r in range(size)]
        total = np.concatenate(cotangents)
    gradient = _through(op, inputs, total, size) * prescale * postscale

    def call(tensors, name):
        function = getattr(kr, kind)
        return [
            function(
                tensors[0],
                kr.ReduceOp[op],
                name=name,
                process_set=rank_group.process_set(),
                prescale_factor=prescale,
                postscale_factor=postscale,
            )
        ]

    return Variant(call, [inputs], [cotangents], [gradient])


def _grouped(kind):
    """Two floats with an integer between them."""
    size, rank = rank_group.size(), rank_group.rank()
    scatter = "reducescatter" in kind
    gather = "allgather" in kind
    inputs, cotangents, gradients = [], [], []
    for seed, dtype in enumerate(("float32", "int32", "float64")):
        rows = [r + seed if gather else 4 + seed for r in range(size)]
        inputs.append(
            [_drawn(seed, r, (rows[r], 2), dtype) for r in range(size)]
        )
        results = rows
        if scatter:
            results = model.scattered_rows(rows[0], size)
        if gather:
            results = [sum(rows)] * size
        of_results = [
            _drawn(seed + 9, r, (results[r], 2), dtype) for r in range(size)
        ]
        cotangents.append(of_results)
        if dtype == "int32":
            gradients.append(None)
        elif scatter:
            gradients.append(np.concatenate(of_results) / size)
        elif gather:
            begin = sum(rows[:rank])
            gradients.append(sum(of_results)[begin : begin + rows[rank]])
        else:
            gradients.append(sum(of_results) / size)

    def call(tensors, name):
        return getattr(kr, kind)(
            list(tensors), name=name, process_set=rank_group.process_set()
        )

    return Variant(call, inputs, cotangents, gradients)


def _allgather(dtype):
    size, rank = rank_group.size(), rank_group.rank()
    rows = [3 * (r % 2) for r in range(size)]  # none on some ranks
    inputs = [_drawn(5, r, (rows[r], 2), dtype) for r in range(size)]
    cotangents = [_drawn(6, r, (sum(rows), 2), dtype) for r in range(size)]
    begin = sum(rows[:rank])
    gradient = (
        model.reduce(cotangents, "Sum").value
        if (not dtype.startswith("complex"))
        else sum(cotangents)
    )
    return Variant(
        lambda tensors, name: [
            kr.allgather(
                tensors[0], name=name, process_set=rank_group.process_set()
            )
        ],
        [inputs],
        [cotangents],
        [gradient[begin : begin + rows[rank]]],
    )


def _broadcast(dtype):
    size, root = rank_group.size(), rank_group.size() - 1
    inputs = [_drawn(5, r, (3,), dtype) for r in range(size)]
    cotangents = [_drawn(6, r, (3,), dtype) for r in range(size)]
    total = sum(cotangents) * (rank_group.rank() == root)
    return Variant(
        lambda tensors, name: [
            kr.broadcast(
                tensors[0],
                rank_group.in_job(root),
                name=name,
                process_set=rank_group.process_set(),
            )
        ],
        [inputs],
        [cotangents],
        [total],
    )


def _alltoall(given):
    size, rank = rank_group.size(), rank_group.rank()
    splits = [
        [(source + 2 * to) % 3 if given else 2 for to in range(size)]
        for source in range(size)
    ]
    inputs = [_drawn(5, r, (sum(splits[r]), 2)) for r in range(size)]
    results = model.alltoall(inputs, splits)
    cotangents = [_drawn(6, r, results[r][0].shape) for r in range(size)]
    back = [list(column) for column in zip(*splits, strict=True)]
    gradient = model.alltoall(cotangents, back)[rank][0]

    def call(tensors, name):
        arguments = {"name": name, "process_set": rank_group.process_set()}
        if given:
            return [kr.alltoall(tensors[0], splits[rank], **arguments)[0]]
        return [kr.alltoall(tensors[0], **arguments)]

    return Variant(call, [inputs], [cotangents], [gradient])


def _variant(name):
    kind, _, details = name.partition(" ")
    if kind in ("allreduce", "reducescatter"):
        op, _, scaled = details.partition(", ")
        return _reduction(kind, op, *([0.3, 7.0] if scaled else []))
    if kind.startswith("grouped_"):
        return _grouped(kind)
    if kind == "allgather":
        return _allgather(details or "float64")
    if kind == "broadcast":
        return _broadcast(details or "float64")
    return _alltoall(details != "without splits")


# How a program may come by a gradient. Each takes the variant, its inputs and
# cotangents and a name, and returns how many times the gradient it has, and
# that.


def _backward(function, inputs, cotangents):
    sources = [x for x in inputs if x.dtype != tf.int32]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        results = function(inputs)
    targets = [y for y in results if y.dtype != tf.int32]
    return tape.gradient(targets, sources, output_gradients=cotangents)


def _plain(call, inputs, cotangents, name):
    return 1, _backward(lambda x: call(x, name), inputs, cotangents)


def _twice(call, inputs, cotangents, name):
    """A persistent tape, used again."""
    sources = [x for x in inputs if x.dtype != tf.int32]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        results = call(inputs, name)
    targets = [y for y in results if y.dtype != tf.int32]
    gradients = [
        tape.gradient(targets, sources, output_gradients=cotangents)
        for _ in range(2)
    ]
    return 2, [a + b for a, b in zip(*gradients, strict=True)]


def _custom(call, inputs, cotangents, name):
    """A custom gradient around it that computes it anew."""

    @tf.custom_gradient
    def around(*x):
        def gradient(*upstream):
            kept = [u for u in upstream if u.dtype != tf.int32]
            found = iter(
                _backward(lambda z: call(z, f"{name}.anew"), list(x), kept)
            )
            return [None if z.dtype == tf.int32 else next(found) for z in x]

        return call(list(x), name), gradient

    def function(x):
        results = around(*x)
        return results if isinstance(results, list | tuple) else [results]

    return 1, _backward(function, inputs, cotangents)


def _in_cond(call, inputs, cotangents, name):
    taken = tf.reduce_all(tf.equal(inputs[0], inputs[0]))

    def function(x):
        return tf.cond(
            taken,
            lambda: call(x, name),
            lambda: [3 * y for y in call(x, name)],
        )

    return 1, _backward(function, inputs, cotangents)


def _in_loop(call, inputs, cotangents, name):
    # A TensorFlow 1 graph would run both turns at once: docs/collectives.md.
    in_function = tf.executing_eagerly() or (
        tf.compat.v1.get_default_graph().building_function
    )

    def function(x):
        first = call(x, f"{name}.first")
        _, sums = tf.while_loop(
            lambda i, _: i < 2,
            lambda i, sums: (
                i + 1,
                [s + y for s, y in zip(sums, call(x, name), strict=True)],
            ),
            (0, first),
            maximum_iterations=2,
            parallel_iterations=10 if in_function else 1,
        )
        return sums

    return 3, _backward(function, inputs, cotangents)


_ROUTES = {
    "plain": _plain,
    "twice": _twice,
    "custom": _custom,
    "cond": _in_cond,
    "loop": _in_loop,
}


def _check(name, mode):
    """Checks a variant in a mode; returns how many gradients were right."""
    variant = _variant(name)
    rank = rank_group.rank()
    inputs = [tf.constant(arrays[rank]) for arrays in variant.inputs]
    cotangents = [
        tf.constant(arrays[rank])
        for arrays in variant.cotangents
        if arrays[rank].dtype != np.int32
    ]
    factors = {}

    def function(*tensors):
        x, upstream = tensors[: len(inputs)], tensors[len(inputs) :]
        gradients = {}
        for route, compute in _ROUTES.items():
            factors[route], gradients[route] = compute(
                variant.call,
                list(x),
                list(upstream),
                f"{name}.{mode}.{route}",
            )
        return gradients

    found = in_mode(mode, function, *inputs, *cotangents)
    wanted = [g for g in variant.gradients if g is not None]
    count = 0
    for route, gradients in found.items():
        for gradient, want in zip(gradients, wanted, strict=True):
            eps = np.finfo(gradient.real.dtype).eps
            np.testing.assert_allclose(
                np.asarray(gradient),
                np.asarray(want * factors[route]),
                rtol=16 * eps,
                atol=16 * rank_group.size() * eps,
                err_msg=f"{name}, {mode}, {route}",
            )
            count += 1
    return count


def integers_have_none():
    """In a group, and alone."""
    for kind in ("allreduce", "allgather", "reducescatter"):
        floats = tf.ones([4])
        integers = tf.ones([4], tf.int32)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([floats])
            results = getattr(kr, f"grouped_{kind}")(
                [integers, floats], process_set=rank_group.process_set()
            )
        # An integer depends on no number, though TensorFlow sees one op.
        assert not tape.gradient(results[0], floats).numpy().any(), kind
        assert tape.gradient(results[1], integers) is None, kind
        assert tape.gradient(results[1], floats) is not None, kind


def gradients_of_gradients():
    """Of Sum twice: n squared."""
    x = tf.constant(2.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            total = kr.allreduce(
                x, kr.Sum, name="second", process_set=rank_group.process_set()
            )
            y = total**2
        first = inner.gradient(y, x)
    second = outer.gradient(first, x)
    np.testing.assert_allclose(second, 2.0 * rank_group.size() ** 2)


def run(variants, ranks=None):
    """Returns, by variant and mode, how many gradients were right.

    Args:
        variants: Names in the table.
        ranks: Those of the process set that computes them. Defaults to all.
            The others return `None`.
    """
    if not rank_group.begin(ranks):
        return None
    integers_have_none()
    gradients_of_gradients()
    found = {}
    for name in variants:
        found[name] = {}
        for mode in table.GRADIENT_MODES:
            try:
                found[name][mode] = _check(name, mode)
            except NotImplementedError:
                if table.gradient_outcome(name, mode) == table.YES:
                    raise
                found[name][mode] = 0
    return found
