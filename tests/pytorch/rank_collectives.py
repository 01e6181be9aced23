"""What ranks do with collectives of PyTorch's tensors."""

import math
import sys
import time

import numpy as np
import torch

import keras_ring.torch as kr
from keras_ring import errors

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MOVED = (torch.bool, torch.complex64, torch.complex128)


def init():
    torch.set_num_threads(1)
    kr.init()
    return kr.rank(), kr.size()


def _values(dtype, rank, shape=(3, 4)):
    count = math.prod(shape)
    return (torch.arange(count).reshape(shape) % 5 + rank + 1).to(dtype)


def imports():
    """Returns the frameworks that a job of PyTorch has loaded."""
    rank, _size = init()
    kr.allreduce(torch.ones(3))
    kr.broadcast_object([rank])
    return [
        name
        for name in ("tensorflow", "keras", "tf_keras", "jax")
        if name in sys.modules
    ]


def reductions():
    """Each dtype and operation, against what all ranks have."""
    rank, size = init()
    for dtype in (*FLOATS, *INTEGERS):
        stack = torch.stack([_values(dtype, r) for r in range(size)])
        wide = stack.double()
        wanted = {
            kr.Sum: wide.sum(0),
            kr.Min: wide.min(0).values,
            kr.Max: wide.max(0).values,
            kr.Product: wide.prod(0),
            kr.Average: wide.sum(0) / size,
        }
        for op, value in wanted.items():
            if not dtype.is_floating_point:
                value = value.floor()
            value = value.to(dtype)
            mine = stack[rank].clone()
            got = kr.allreduce(mine, op, name=f"{dtype}.{op.name}")
            assert got.dtype == dtype and torch.equal(got, value), (op, dtype)
            assert torch.equal(mine, stack[rank])
            rows = kr.reducescatter(mine, op, name=f"rows.{dtype}.{op.name}")
            begins = np.array_split(np.arange(3), size)[rank]
            assert torch.equal(rows, value[begins]), (op, dtype)
            kr.allreduce_(mine, op, name=f"{dtype}.{op.name}")
            assert torch.equal(mine, value)
    return True


def moves():
    """What moves tensors, of each dtype, with rows that differ by rank."""
    rank, size = init()
    for dtype in (*FLOATS, *INTEGERS, *MOVED):
        parts = [_values(dtype, r, (r, 2)) for r in range(size)]
        whole = torch.cat(parts)
        assert torch.equal(kr.allgather(parts[rank]), whole)
        one = kr.broadcast(_values(dtype, rank), size - 1)
        assert torch.equal(one, _values(dtype, size - 1))
        place = _values(dtype, rank)
        assert kr.broadcast_(place, 0, name="place") is place
        assert torch.equal(place, _values(dtype, 0))
        # To rank r go r + 1 rows.
        splits = [r + 1 for r in range(size)]
        sent = _values(dtype, rank, (sum(splits), 2))
        received, counts = kr.alltoall(sent, torch.tensor(splits))
        begin = sum(splits[:rank])
        wanted = [
            _values(dtype, r, (sum(splits), 2))[begin : begin + rank + 1]
            for r in range(size)
        ]
        assert torch.equal(received, torch.cat(wanted))
        assert counts.tolist() == [rank + 1] * size
    empty = kr.allgather(torch.empty(0, 3))
    assert empty.shape == (0, 3)
    equal = kr.alltoall(torch.arange(2 * size))
    assert equal.tolist() == [2 * rank, 2 * rank + 1] * size
    return True


def layouts():
    """Memory in other orders than that of the dimensions."""
    rank, size = init()
    torch.manual_seed(1)
    images = torch.randn(2, 3, 4, 5)
    forms = {
        "channels_last": images.to(memory_format=torch.channels_last),
        "transposed": images.transpose(0, 3),
        "sliced": images[:, :, ::2],
        "square": torch.randn(3, 3).t(),
        "expanded": torch.randn(1, 4).expand(3, 4),
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 4),
        "offset": torch.randn(10)[3:],
    }
    for name, value in forms.items():
        before = value.clone()
        got = kr.allreduce(value * (rank + 1), kr.Sum, name=name)
        wanted = value * (size * (size + 1) / 2)
        assert torch.allclose(got, wanted), name
        assert torch.equal(value, before), name
        got = kr.allreduce(value, kr.Sum, name=f"{name}.same")
        assert torch.allclose(got, value * size), name
        if name != "expanded":
            place = value * 1
            place = place.as_strided(value.shape, place.stride())
            strided = value.clone(memory_format=torch.preserve_format)
            handle = kr.allreduce_async_(strided, kr.Sum, name=f"{name}_")
            assert kr.synchronize(handle) is strided
            assert torch.allclose(strided, value * size), name
            kr.broadcast_(strided, size - 1, name=f"{name}.b")
            assert torch.allclose(strided, value * size), name
    # The same shape, whose memory has another order on one rank.
    square = torch.arange(9.0).reshape(3, 3)
    mine = square if rank == 0 else square.t().contiguous().t()
    got = kr.allreduce(mine, kr.Sum, name="mixed")
    assert torch.equal(got, square * size)
    base = torch.zeros(4, 6)
    kr.allreduce_((base + 1)[:, ::2], kr.Sum, name="part")
    view = base[:, ::2]
    view += 1
    kr.allreduce_(view, kr.Sum, name="part")
    assert base[:, ::2].eq(size).all() and base[:, 1::2].eq(0).all()
    return True


def asynchronous():
    """Many at a time, in another order on each rank, and polled."""
    rank, size = init()
    names = [f"t{i}" for i in range(60)]
    values = {n: torch.full((i + 1,), float(i)) for i, n in enumerate(names)}
    order = np.random.default_rng(rank).permutation(names)
    handles = {n: kr.allreduce_async(values[n], kr.Sum, name=n) for n in order}
    for i, name in enumerate(names):
        while not kr.poll(handles[name]):
            time.sleep(0.001)
        assert kr.synchronize(handles[name]).eq(i * size).all()
    # Without names: in the same order.
    unnamed = [kr.allreduce_async(torch.full((3,), float(i))) for i in range(9)]
    for i, handle in reversed(list(enumerate(unnamed))):
        assert kr.synchronize(handle).eq(i).all()
        assert kr.synchronize(handle).eq(i).all()  # once more is the same
    group = [torch.ones(2), torch.ones(3, dtype=torch.float64)]
    handle = kr.grouped_allreduce_async(group, kr.Sum, name="group")
    assert [t.sum().item() for t in handle.wait()] == [2 * size, 3 * size]
    kr.grouped_allreduce_(group, kr.Sum, name="group")
    assert group[1].eq(size).all()
    dropped = kr.allreduce_async(torch.ones(1 << 20), name="dropped")
    del dropped
    kr.barrier()
    return True


def factors_and_compression():
    rank, size = init()
    value = torch.full((100,), 1.0 + rank)
    total = size * (size + 1) / 2
    settings = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    got = kr.allreduce(value, kr.Sum, name="scaled", **settings)
    assert got.eq(total * 1.5).all()
    whole = torch.tensor([7 + rank], dtype=torch.int32)
    got = kr.allreduce(whole, kr.Sum, name="whole", **settings)
    halves = sum((7 + r) // 2 for r in range(size))
    assert got.item() == halves * 3
    third = torch.full((100,), 1.0 / 3.0)
    for compression, digits in (
        (kr.Compression.fp16, 1e-3),
        (kr.Compression.bf16, 1e-2),
        (_Doubling(), 1e-6),
    ):
        name = type(compression).__name__ + str(digits)
        got = kr.allreduce(third, name=name, compression=compression)
        assert got.dtype == torch.float32
        assert torch.allclose(got, third, rtol=digits)
        assert digits == 1e-6 or not torch.equal(got, third)
    return True


class _Doubling:
    """A compression of the program's own."""

    def compress(self, tensor):
        return tensor.double(), tensor.dtype

    def decompress(self, tensor, dtype):
        return tensor.to(dtype)


def derivatives():
    """Gradients through collectives, also of gradients."""
    rank, size = init()

    def leaf(*shape):
        values = torch.arange(1.0, math.prod(shape) + 1)
        return values.reshape(shape).requires_grad_()

    weights = float(rank + 1)
    mean, total = (size + 1) / 2, size * (size + 1) / 2
    x = leaf(3)
    (kr.allreduce(x, kr.Average) * weights).sum().backward()
    assert x.grad.eq(mean).all()
    x = leaf(3)
    (kr.allreduce(x, kr.Sum) * weights).sum().backward()
    assert x.grad.eq(total).all()
    x, y = leaf(2), leaf(2, 2)
    first, second = kr.grouped_allreduce([x, y], kr.Sum)
    (first.sum() + second.sum() * weights).backward()
    assert x.grad.eq(size).all() and y.grad.eq(total).all()
    x = leaf(rank + 1, 2)
    gathered = kr.allgather(x)
    rows = torch.arange(1.0, len(gathered) + 1)[:, None]
    (gathered * rows * weights).sum().backward()
    begin = rank * (rank + 1) // 2
    wanted = rows[begin : begin + rank + 1] * mean
    assert torch.allclose(x.grad, wanted.expand(rank + 1, 2))
    x = leaf(3)
    (kr.broadcast(x, 0) * weights).sum().backward()
    assert x.grad.eq(mean if rank == 0 else 0).all()
    x = leaf(size, 2)
    (kr.alltoall(x) * weights).sum().backward()
    assert x.grad.eq(torch.arange(1.0, size + 1)[:, None]).all()
    x = leaf(2 * size, 2)
    (kr.reducescatter(x, kr.Sum) * weights).sum().backward()
    each = torch.arange(1.0, size + 1).repeat_interleave(2)[:, None]
    assert x.grad.eq(each * size).all()
    # Of second order.
    x = leaf(3)
    y = kr.allreduce(x * x, kr.Average)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, torch.full((3,), 2.0))
    with torch.no_grad():
        assert not kr.allreduce(x).requires_grad
    return True


def sparse():
    rank, _size = init()
    indices = torch.tensor([[rank, 5, 5]])
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 1.0]])
    tensor = torch.sparse_coo_tensor(indices, values, (8, 2))
    for op in (kr.Sum, kr.Average):
        got = kr.sparse_allreduce_async(tensor, op=op, name=op.name)()
        dense = kr.allreduce(tensor.to_dense(), op)
        assert got.is_coalesced()
        assert torch.allclose(got.to_dense(), dense)
    nothing = torch.sparse_coo_tensor(
        torch.empty((1, 0), dtype=torch.int64), torch.empty(0, 2), (8, 2)
    )
    mine = tensor if rank == 0 else nothing
    got = kr.synchronize(kr.sparse_allreduce_async(mine, op=kr.Sum))
    wanted = kr.broadcast(tensor.to_dense(), 0)
    assert torch.allclose(got.to_dense(), wanted)
    return True


def sets_and_objects():
    rank, size = init()
    even = kr.add_process_set(range(0, size, 2))
    if even.included():
        got = kr.allreduce(torch.tensor(float(rank)), kr.Sum, process_set=even)
        assert got.item() == sum(range(0, size, 2))
    objects = kr.allgather_object({"rank": rank})
    assert [each["rank"] for each in objects] == list(range(size))
    state = {
        "b": torch.full((2,), float(rank)),
        "a": torch.full((3, 3), rank).t(),
        "text": "no tensor",
    }
    kr.broadcast_parameters(state, root_rank=size - 1)
    assert state["b"].eq(size - 1).all() and state["a"].eq(size - 1).all()
    kr.barrier()
    kr.barrier(process_set=kr.global_process_set)
    return True


def _error_of(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def wrong_calls():
    """Returns the errors of wrong calls, by what is wrong."""
    rank, size = init()
    one = torch.ones(2)
    found = {
        "list": _error_of(lambda: kr.allreduce([1.0])),
        "sparse": _error_of(lambda: kr.allreduce(one.to_sparse())),
        "complex": _error_of(lambda: kr.allreduce(one.to(torch.complex64))),
        "meta": _error_of(lambda: kr.allreduce(one.to("meta"))),
        "op": _error_of(lambda: kr.allreduce(one, "sum")),
        "compression": _error_of(lambda: kr.allreduce(one, compression=16)),
        "adasum": _error_of(lambda: kr.allreduce(one.int(), kr.Adasum)),
        "scalar": _error_of(lambda: kr.allgather(torch.tensor(1))),
        "rows": _error_of(lambda: kr.reducescatter(torch.tensor(1.0))),
        "none": _error_of(lambda: kr.grouped_allreduce_async([])),
        "root": _error_of(lambda: kr.broadcast(one, size)),
        "splits": _error_of(lambda: kr.alltoall(one, torch.ones(size))),
        "shape": _error_of(
            lambda: kr.allreduce(torch.ones(rank + 1), name="shape")
        ),
        "minimum": _error_of(
            lambda: (
                kr.allreduce(
                    torch.ones(2, requires_grad=True), kr.Min, name="minimum"
                )
                .sum()
                .backward()
            )
        ),
        "name": _error_of(
            lambda: kr.broadcast_parameters(
                {f"of rank {rank}": one}, root_rank=0
            )
        ),
    }
    return found


def lost():
    """Returns the error of the ranks that are left, and after how long."""
    import os
    import signal

    rank, _size = init()
    began = time.monotonic()
    try:
        # Its end on rank 1 is not yet that on the others.
        kr.allreduce(torch.ones(3))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            kr.allreduce(torch.ones(3))
    except errors.UnavailableError as error:
        return str(error), time.monotonic() - began
