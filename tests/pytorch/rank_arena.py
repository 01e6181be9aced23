"""What ranks do with tensors of PyTorch in memory that all of them read."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import keras_ring.torch as kr


def init():
    torch.set_num_threads(1)
    kr.init()
    return kr.rank(), kr.size()


def uses():
    """Returns the bytes of the arena after large tensors, and after small."""
    rank, size = init()
    before = kr.metrics()["arena_bytes_in_use"]
    small = [torch.full((1000,), float(rank)) for _ in range(100)]
    few = kr.metrics()["arena_bytes_in_use"] - before
    large = torch.full((1 << 20,), float(rank + 1))
    many = kr.metrics()["arena_bytes_in_use"] - before
    reduced = kr.allreduce(large, kr.Sum, name="large")
    kr.allreduce_(large, kr.Sum, name="large")
    assert large.eq(size * (size + 1) / 2).all() and torch.equal(large, reduced)
    assert small[0].eq(rank).all()
    del large, reduced
    after = kr.metrics()["arena_bytes_in_use"] - before
    return few, many, after


def changes_of_size():
    """Tensors of many sizes that come and go, with what they should hold."""
    rank, size = init()
    generator = torch.Generator().manual_seed(1)
    alive = []
    for step in range(200):
        count = int(torch.randint(1, 300_000, (), generator=generator))
        alive.append((step, torch.full((count,), float(step + rank))))
        if len(alive) > 20:
            index = int(torch.randint(0, 20, (), generator=generator))
            old, tensor = alive.pop(index)
            assert tensor.eq(old + rank).all()
            kr.allreduce_(tensor, kr.Sum, name=f"t{index}.{len(tensor)}")
            assert tensor.eq(size * old + size * (size - 1) / 2).all()
    tensor = torch.ones(1000)
    tensor.resize_(100_000)
    tensor.fill_(2.0)
    assert kr.allreduce(tensor, name="resized").eq(2.0).all()
    return True


def loads():
    """Workers of a `DataLoader`, which are forks, give the same batches."""
    rank, _ = init()
    x = torch.arange(400_000.0).reshape(200, 2000) + rank
    loader = DataLoader(TensorDataset(x), 10, num_workers=2)
    model = torch.nn.Linear(2000, 1)
    optimizer = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 1e-12)
    )
    for _ in range(2):
        for i, (batch,) in enumerate(loader):
            assert torch.equal(batch, x[10 * i : 10 * i + 10])
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
    return True
