"""What ranks do with collectives of JAX's arrays."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import keras_ring.jax as kr
from keras_ring import core, errors

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
MOVED = ("bool", "complex64", "complex128")


def init():
    jax.config.update("jax_enable_x64", True)
    kr.init()
    return kr.rank(), kr.size()


def imports():
    """Returns the frameworks that a job of JAX has loaded."""
    rank, _size = init()
    kr.allreduce(jnp.ones(3))
    kr.broadcast_object([rank])
    return [
        name
        for name in ("tensorflow", "keras", "tf_keras", "torch")
        if name in sys.modules
    ]


def _values(dtype, rank, shape=(3, 4)):
    count = int(np.prod(shape))
    return (jnp.arange(count).reshape(shape) % 3 + rank + 1).astype(dtype)


def _modes(function):
    """Yields a function as it is, and compiled."""
    yield "eager", function
    yield "compiled", jax.jit(function)


def reductions():
    """Each dtype and operation, against what all ranks have."""
    rank, size = init()
    for dtype in (*FLOATS, *INTEGERS):
        stack = jnp.stack([_values(dtype, r) for r in range(size)])
        wide = np.asarray(stack).astype(np.float64)
        wanted = {
            kr.Sum: wide.sum(0),
            kr.Min: wide.min(0),
            kr.Max: wide.max(0),
            kr.Product: wide.prod(0),
            kr.Average: wide.sum(0) / size,
        }
        for op, value in wanted.items():
            if dtype in INTEGERS:
                value = np.floor(value)
            value = jnp.asarray(value).astype(dtype)
            for mode, reduce in _modes(lambda x, op=op: kr.allreduce(x, op)):
                got = reduce(stack[rank])
                assert got.dtype == dtype, (dtype, mode)
                assert (got == value).all(), (dtype, op, mode, got, value)
            for mode, scatter in _modes(
                lambda x, op=op: kr.reducescatter(x, op)
            ):
                first = sum(3 // size + (r < 3 % size) for r in range(rank))
                rows = scatter(stack[rank])
                assert len(rows) == 3 // size + (rank < 3 % size)
                assert (rows == value[first : first + len(rows)]).all(), mode
    for mode, adasum in _modes(lambda x: kr.allreduce(x, kr.Adasum)):
        assert jnp.allclose(adasum(jnp.ones(4)), 1.0), mode
    return True


def factors_and_compression():
    rank, size = init()

    def scaled(x):
        return kr.allreduce(
            x, kr.Sum, prescale_factor=2.0, postscale_factor=0.5
        )

    def largest(x):
        return kr.allreduce(x, kr.Max, prescale_factor=2.0)

    def rounded(x):
        return kr.allreduce(x, compression=kr.Compression.fp16)

    total = size * (size + 1) / 2
    for _mode, reduce in _modes(scaled):
        assert (reduce(jnp.full(3, rank + 1.0)) == total).all()
    for _mode, reduce in _modes(largest):
        assert reduce(jnp.array([rank, 7])).tolist() == [2 * (size - 1), 14]
    for factor, wanted in ((2.0, 2 * size), (2.5, 2 * size + size // 2)):
        for mode, reduce in _modes(
            lambda x, factor=factor: kr.allreduce(
                x, kr.Sum, postscale_factor=factor
            )
        ):
            got = reduce((jnp.int32(1), jnp.float32(1)))
            assert int(got[0]) == wanted, (mode, got, wanted)
            assert float(got[1]) == factor * size
    exact = kr.allreduce(
        jnp.array([2**30 + 1]),
        kr.Max,
        prescale_factor=1.0,
        postscale_factor=1.0,
    )
    assert int(exact[0]) == 2**30 + 1
    for _mode, reduce in _modes(rounded):
        got = reduce(jnp.full(3, 1 + 2**-12))
        assert got.dtype == jnp.float64 and (got == 1).all()
    return True


def moves():
    """What is moved, also trees and arrays without rows or elements."""
    rank, size = init()
    for dtype in (*FLOATS, *INTEGERS, *MOVED):
        array = jnp.full((2, 3), rank % 2).astype(dtype)
        wanted = [r % 2 for r in range(size) for _ in range(2)]
        for mode, gather in _modes(kr.allgather):
            gathered = gather(array)
            assert gathered.dtype == dtype and gathered.shape == (2 * size, 3)
            expected = np.array(wanted).astype(gathered.dtype)
            assert (np.asarray(gathered)[:, 1] == expected).all(), mode
        for mode, send in _modes(lambda x: kr.broadcast(x, size - 1)):
            got = send(jnp.asarray(rank).astype(dtype))
            assert got.shape == () and got.dtype == dtype
            assert got == jnp.asarray(size - 1).astype(dtype), (dtype, mode)
    rows = jnp.arange(2 * size) + 100 * rank
    wanted = [100 * r + 2 * rank + i for r in range(size) for i in range(2)]
    for mode, exchange in _modes(kr.alltoall):
        assert exchange(rows).tolist() == wanted, mode
    tree = {"a": jnp.ones((2, 2)) * rank, "b": (jnp.arange(3) + rank, 5.0)}
    for mode, reduce in _modes(lambda x: kr.allreduce(x, kr.Sum)):
        got = reduce(tree)
        assert jax.tree.structure(got) == jax.tree.structure(tree), mode
        assert (got["a"] == size * (size - 1) / 2).all()
        assert got["b"][1] == 5.0 * size
    for _mode, reduce in _modes(lambda x: kr.allreduce(x)):
        assert reduce(jnp.zeros((0, 3))).shape == (0, 3)
    assert kr.allreduce({}) == {} and kr.allreduce(None) is None
    big = jnp.asarray(np.random.default_rng(0).random(3_000_000))
    for _mode, send in _modes(kr.broadcast):
        assert (send(big * (rank == 0)) == big).all()
    return True


def derivatives():
    """Those of the sum of the ranks' losses, against finite differences.

    Each rank perturbs its own values, while the others keep theirs.
    """
    rank, size = init()
    weight = rank + 1.0

    def loss_of(values):
        summed = kr.allreduce(values * weight, kr.Sum, name="sum")
        mean = kr.allreduce({"mean": values**2}, name="mean")["mean"]
        gathered = kr.allgather(values, name="gather")
        sent = kr.broadcast(jnp.sin(values), size - 1, name="send")
        rows = kr.reducescatter(
            jnp.stack([values] * 5),
            kr.Average,
            name="rows",
            prescale_factor=3.0,
        )
        swapped = kr.alltoall(jnp.tile(values, (size, 1)), name="swap")
        factors = jnp.arange(1.0, size * 2 + 1)
        return weight * (
            (summed**2).sum()
            + (mean**3).sum()
            + (gathered**2 @ factors).sum()
            + sent.sum()
            + (rows**2).sum()
            + (swapped**2 * jnp.arange(1.0, size + 1)[:, None]).sum()
        )

    values = jnp.array([0.3, -0.7]) + rank
    for mode, of in _modes(jax.grad(loss_of)):
        got = np.asarray(of(values))
        wanted = np.zeros(2)
        step = 1e-5
        # All ranks evaluate while one of them perturbs.
        for who in range(size):
            for index in range(2):
                moved = [
                    float(
                        core.allreduce(
                            np.asarray(
                                loss_of(
                                    values.at[index].add(
                                        sign * step * (who == rank)
                                    )
                                )
                            ),
                            core.Sum,
                        )
                    )
                    for sign in (1, -1)
                ]
                if who == rank:
                    wanted[index] = (moved[0] - moved[1]) / (2 * step)
        np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=mode)
    # Forward mode, and both of second order.
    out, tangent = jax.jvp(
        lambda x: kr.allreduce(x, kr.Sum), (values,), (jnp.ones(2),)
    )
    assert (tangent == size).all()
    hessian = jax.jit(
        jax.hessian(lambda x: (kr.allreduce(x, kr.Sum) ** 2).sum())
    )
    assert np.allclose(hessian(values), 2 * size * size * np.eye(2))
    # What does not depend on it may be beside what does.
    for mode, grad in _modes(
        jax.grad(
            lambda x: kr.allreduce((jnp.ones(3), x, x.sum()), kr.Sum)[1].sum()
        )
    ):
        assert (grad(values) == size).all(), mode
    both = jax.grad(
        lambda x, y: kr.allgather((x, y))[1].sum() * 2, argnums=(0, 1)
    )
    assert [each.tolist() for each in both(values, values)] == [
        [0.0, 0.0],
        [2.0 * size] * 2,
    ]
    # An integer has none, and may be beside what has one.
    grad = jax.grad(lambda x: kr.allreduce((x, jnp.arange(3)), kr.Sum)[0].sum())
    assert (grad(values) == size).all()
    assert (
        jax.grad(lambda x: (kr.allreduce(x, kr.Sum) * 0).sum())(values) == 0
    ).all()
    try:
        jax.grad(lambda x: kr.allreduce(x, kr.Max).sum())(values)
    except NotImplementedError as error:
        assert "`Max` has no derivative" in str(error)
    else:
        raise AssertionError("no error")
    return out is not None


def transformations():
    """vmap, loops, branches, remat, nested functions."""
    rank, size = init()
    batch = jnp.arange(6.0).reshape(2, 3) + rank
    total = sum(range(size))
    for mode, each in _modes(jax.vmap(lambda x: kr.allreduce(x, kr.Sum))):
        assert (each(batch) == size * batch - size * rank + total).all(), mode
    for mode, each in _modes(
        jax.vmap(lambda x, y: kr.allgather(x + y), in_axes=(1, None))
    ):
        gathered = each(batch, jnp.ones(2))
        assert gathered.shape == (3, 2 * size), mode
        mine = gathered[:, 2 * rank : 2 * rank + 2]
        assert (mine == batch.T + 1).all(), mode

    def body(carry, x):
        carry = kr.allreduce(carry + x, kr.Sum)
        return carry, kr.allreduce(x)

    xs = jnp.arange(4.0) + rank
    for mode, scan in _modes(lambda xs: jax.lax.scan(body, 0.0, xs)):
        carry, means = scan(xs)
        wanted = 0.0
        for x in range(4):
            wanted = size * (wanted + x) + total
        assert carry == wanted, (mode, carry, wanted)
        assert jnp.allclose(means, jnp.arange(4.0) + total / size)
    grad = jax.jit(jax.grad(lambda xs: jax.lax.scan(body, 0.0, xs)[0]))(xs)
    assert jnp.allclose(grad, float(size) ** jnp.arange(4, 0, -1) * 1.0)

    @jax.jit
    def in_branches(flag, x):
        return jax.lax.cond(
            flag,
            lambda x: kr.allreduce(x, kr.Sum),
            lambda x: kr.allreduce(x, kr.Max),
            x,
        )

    mine = jnp.array([float(rank)])
    assert in_branches(True, mine) == total
    assert in_branches(False, mine) == size - 1

    @jax.jit
    def until(x):
        return jax.lax.fori_loop(0, 5, lambda _, value: kr.allreduce(value), x)

    assert jnp.allclose(until(mine), total / size)

    @jax.checkpoint
    def again(x):
        return jnp.sin(kr.allreduce(jnp.sin(x), kr.Sum))

    plain = jax.grad(lambda x: jnp.sin(kr.allreduce(jnp.sin(x), kr.Sum)).sum())
    remat = jax.jit(jax.grad(lambda x: again(x).sum()))
    assert jnp.allclose(plain(mine), remat(mine))
    return True


def orders():
    """Ranks whose programs differ in what is not a collective."""
    rank, size = init()

    @jax.jit
    def inner(x):
        return kr.allreduce(x, kr.Sum)

    @jax.jit
    def step(x):
        # Other constants, and another amount of work, on each rank.
        first = kr.allreduce(x * (rank + 1), kr.Sum)
        for _ in range(3 * rank):
            x = jnp.sin(x) @ jnp.ones((4, 4))
        parts = [kr.allreduce(x + index, kr.Sum) for index in range(8)]
        # Not used on one rank alone.
        extra = inner(first * 2)
        if rank == 0:
            return first, parts[0] * 0
        return first + 0 * extra, parts[-1] * 0

    x = jnp.ones((4, 4)) * 1e-3
    outs = [step(x) for _ in range(20)]
    want = 1e-3 * size * (size + 1) / 2
    assert jnp.allclose(outs[-1][0], want)
    # Two programs that need not wait for each other.
    double = jax.jit(lambda x: kr.allreduce(x * 2, kr.Sum))
    both = [(double(x + i), inner(x + i)) for i in range(50)]
    for i, (one, other) in enumerate(both):
        assert jnp.allclose(one, 2 * size * (1e-3 + i))
        assert jnp.allclose(other, size * (1e-3 + i))
    # Calls of one program that need not wait for each other.
    large = jnp.ones(200_000)
    many = [double(large * i) for i in range(20)]
    for i, one in enumerate(many):
        assert (one == 2 * size * i).all()
    return True


def sets_and_objects():
    rank, size = init()
    assert kr.broadcast_object({"a": rank}) == {"a": 0}
    first = kr.add_process_set(range(size - 1))
    if first.included():

        @jax.jit
        def of_set(x):
            return kr.allreduce(x, kr.Sum, process_set=first), kr.allgather(
                x, process_set=first
            )

        summed, gathered = of_set(jnp.ones(2))
        assert (summed == size - 1).all() and len(gathered) == 2 * (size - 1)
    else:
        try:
            kr.allreduce(jnp.ones(2), process_set=first)
        except errors.InvalidArgumentError as error:
            assert "not a member" in str(error), error
        else:
            raise AssertionError("no error")
    kr.remove_process_set(first)
    kr.barrier()
    return True


def wrong_calls():
    """Returns what is said of calls that cannot work, by a name."""
    rank, size = init()
    told = {}

    def tell(name, function, *args):
        try:
            function(*args)
        except Exception as error:
            told[name] = type(error).__name__, str(error)

    tell("complex", kr.allreduce, jnp.ones(2, jnp.complex64))
    tell("adasum", lambda: kr.allreduce(jnp.arange(3), kr.Adasum))
    tell("op", lambda: kr.allreduce(jnp.ones(2), "sum"))
    tell("compression", lambda: kr.allreduce(jnp.ones(2), compression=16))
    tell("scalar", kr.allgather, 1.0)
    tell("rows", kr.alltoall, jnp.ones(2 * size + 1))
    tell("root", lambda: kr.broadcast(jnp.ones(2), size))
    tell("text", kr.broadcast, "a")
    tell("shape", lambda: kr.allreduce(jnp.ones(2 + rank), name="shape"))
    tell(
        "compiled",
        jax.jit(lambda x: kr.allreduce(x, name="compiled")),
        jnp.ones(2 + rank),
    )
    tell(
        "vmap", jax.vmap(lambda x: kr.allreduce(x, kr.Adasum)), jnp.ones((2, 2))
    )
    removed = kr.add_process_set([0])
    kr.remove_process_set(removed)
    tell("removed", lambda: kr.allreduce(jnp.ones(2), process_set=removed))
    # What failed does not spoil what follows.
    assert (jax.jit(kr.allreduce)(jnp.ones(2)) == 1).all()
    return told


def threads():
    """Returns the number of threads with which JAX computes."""
    init()
    jax.block_until_ready(jax.jit(lambda x: x @ x)(jnp.ones((800, 800))))
    comms = [
        Path(f"/proc/self/task/{task}/comm").read_text()
        for task in os.listdir("/proc/self/task")
    ]
    return sum(comm.startswith("tf_XLAEigen") for comm in comms)


def several_devices():
    """Returns what is said of a program for several devices of a process."""
    _rank, size = init()
    devices = np.array(jax.devices())
    assert len(devices) == 2
    mesh = jax.sharding.Mesh(devices, ("devices",))
    over = jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec("devices")
    )
    divided = jax.device_put(jnp.arange(8.0), over)
    # Outside of compiled functions, it is one array.
    assert kr.allreduce(divided, kr.Sum).tolist() == [
        size * each for each in range(8)
    ]
    reduce = jax.jit(kr.allreduce)
    assert reduce(jnp.ones(3)).tolist() == [1.0] * 3
    try:
        reduce(divided)
    except ValueError as error:
        return str(error)
    return "no error"


def leaving(at_end):
    """Leaves while a step is under way, whose result nobody has read."""
    rank, size = init()
    step = jax.jit(lambda x: kr.allreduce(x @ x, kr.Sum))
    x = jnp.eye(600) * (rank + 1)
    for _ in range(3):
        last = step(x)
    if rank == 0:
        # It comes later, and the others have left by then, or are waiting.
        assert float(last[0, 0]) == sum((r + 1) ** 2 for r in range(size))
        time.sleep(0.3)
        assert float(step(x)[0, 0]) == float(last[0, 0])
    else:
        step(x)
    if not at_end:
        kr.shutdown()
    return True


def lost():
    """Returns what survivors are told in a compiled step, and how soon."""
    rank, _size = init()
    step = jax.jit(lambda x: kr.allreduce(x))
    began = time.monotonic()
    try:
        # Its end on rank 1 is not yet that on the others.
        jax.block_until_ready(step(jnp.ones(3)))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(1000):
            jax.block_until_ready(step(jnp.ones(3)))
    except jax.errors.JaxRuntimeError as error:
        return str(error), time.monotonic() - began
    return "no error", 0.0


def names():
    """Collectives of two threads, and of one line, which names tell apart."""
    rank, size = init()
    results = {}

    def work(which):
        step = jax.jit(lambda x: kr.allreduce(x, kr.Sum, name=which))
        for turn in range(30):
            results[which, turn] = float(step(jnp.float32(turn + len(which))))

    threads = [threading.Thread(target=work, args=(w,)) for w in ("a", "bb")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {
        (which, turn): size * (turn + len(which))
        for which in ("a", "bb")
        for turn in range(30)
    }
    assert rank < size
    return True
