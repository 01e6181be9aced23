"""What ranks do with MXNet."""

import sys
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mxnet as mx
    from mxnet import autograd, gluon

import numpy as np

import keras_ring.mxnet as kr
from keras_ring.errors import KerasRingError

ROWS, COLUMNS, BATCH = 96, 6, 24


def init():
    kr.init()
    return kr.rank(), kr.size()


def collectives():
    """Returns what collectives give, as NumPy arrays."""
    rank, size = init()
    x = mx.nd.arange(6).reshape((2, 3)) + rank
    found = {
        "sum": kr.allreduce(x, kr.Sum),
        "mean": kr.allreduce(x, name="mean"),
        "scaled": kr.allreduce(x, op=kr.Sum, prescale_factor=0.5),
        "largest": kr.allreduce(x, kr.Max),
        "integers": kr.allreduce(
            mx.nd.array([7, 9], dtype="int32"), kr.Sum, postscale_factor=0.5
        ),
        "half": kr.allreduce(x, kr.Sum, compression=kr.Compression.fp16),
        "gathered": kr.allgather(mx.nd.ones((rank + 1, 2)) * rank),
        "root": kr.broadcast(x, 1),
        "rows": kr.reducescatter(mx.nd.ones((2, 2)), kr.Sum),
        "exchanged": kr.alltoall(mx.nd.arange(2 * size) + 10 * rank),
    }
    splits = [1] * (size - 1) + [2]
    rows, counts = kr.alltoall(mx.nd.arange(size + 1), splits)
    found |= {"uneven": rows, "counts": counts}
    in_place = x.copy()
    assert kr.allreduce_(in_place, kr.Sum) is in_place
    other = x.copy()
    assert kr.broadcast_(other, 1) is other
    pair = [x.copy(), (x * 2).astype("float64")]
    kr.grouped_allreduce_(pair, kr.Sum)
    alone = kr.grouped_allgather([x, x + 1])
    found |= {"in_place": in_place, "root_in_place": other}
    found |= {f"pair{i}": each for i, each in enumerate(pair)}
    found |= {f"group{i}": each for i, each in enumerate(alone)}
    return {name: value.asnumpy() for name, value in found.items()}


def of_horovod():
    """Calls functions as programs of Horovod do; returns the results."""
    init()
    x = mx.nd.ones((2,)) * (kr.rank() + 1)
    return [
        kr.allreduce(x, False, "a", 0).asnumpy().tolist(),
        kr.allreduce(x, average=True, name="b", priority=1).asnumpy().tolist(),
        kr.broadcast(x, 0, "c", 0).asnumpy().tolist(),
    ]


def data():
    random = np.random.default_rng(5)
    x = random.normal(size=(ROWS, COLUMNS))
    return x, np.tanh(x @ random.normal(size=(COLUMNS, 2)))


def make(seed, deferred=False):
    mx.random.seed(seed)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        # Without `in_units` its shape is not known before the first batch.
        known = {} if deferred else {"in_units": COLUMNS}
        net.add(gluon.nn.Dense(8, activation="tanh", **known))
        net.add(gluon.nn.Dense(2, in_units=8))
    net.cast("float64")
    net.initialize(mx.init.Xavier())
    return net


def passed(net, x, y, batch, step):
    """Trains on all rows, three times."""
    loss_of = gluon.loss.L2Loss()
    for _ in range(3):
        for at in range(0, len(x), batch):
            part = slice(at, at + batch)
            with autograd.record():
                loss = loss_of(
                    net(mx.nd.array(x[part], dtype="float64")),
                    mx.nd.array(y[part], dtype="float64"),
                )
            loss.backward()
            step(batch)
    return [each.data().asnumpy() for each in net.collect_params().values()]


def trained(optimizer, arguments, settings, deferred=False):
    """Returns how far ranks are from one process with whole batches."""
    rank, size = init()
    x, y = data()
    net = make(1)
    trainer = gluon.Trainer(
        net.collect_params(), optimizer, dict(arguments), kvstore=None
    )
    wanted = passed(net, x, y, BATCH, trainer.step)
    net = make(1 if rank == 0 else 2, deferred)
    if deferred:
        # The weights of one process, as soon as there are some.
        mx.random.seed(1 if rank == 0 else 2)
    kr.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = kr.DistributedTrainer(
        net.collect_params(), optimizer, dict(arguments), **settings
    )
    found = passed(
        net, x[rank::size], y[rank::size], BATCH // size, trainer.step
    )
    by_rank = kr.allgather_object(found)
    same = all(
        np.array_equal(a, b)
        for weights in by_rank
        for a, b in zip(weights, by_rank[0], strict=True)
    )
    far = max(
        float(np.max(np.abs(a - b))) for a, b in zip(wanted, found, strict=True)
    )
    return far, same


def by_updates(num_groups):
    """Returns how far a loop with a `DistributedOptimizer` is."""
    rank, size = init()
    x, y = data()

    def run(optimizer, net, x, y, batch):
        updater = mx.optimizer.get_updater(optimizer)
        params = list(net.collect_params().values())

        def step(batch):
            optimizer.rescale_grad = 1.0 / batch
            for index, each in enumerate(params):
                updater(index, each.grad(), each.data())

        return passed(net, x, y, batch, step)

    wanted = run(
        mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9),
        make(1),
        x,
        y,
        BATCH,
    )
    net = make(1)
    inner = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9)
    found = run(
        kr.DistributedOptimizer(inner, num_groups=num_groups),
        net,
        x[rank::size],
        y[rank::size],
        BATCH // size,
    )
    return max(
        float(np.max(np.abs(a - b))) for a, b in zip(wanted, found, strict=True)
    )


def sparse():
    """An embedding with sparse gradients; returns its weights by rank."""
    rank, _ = init()
    net = gluon.nn.Embedding(6, 2, sparse_grad=True, prefix="embedding_")
    net.initialize(mx.init.One())
    trainer = kr.DistributedTrainer(
        net.collect_params(), "sgd", {"learning_rate": 1.0}
    )
    with autograd.record():
        loss = net(mx.nd.array([rank, 5])).sum()
    loss.backward()
    trainer.step(1)
    return net.weight.data().asnumpy()


def mistakes():
    """Returns what a program is told of its mistakes."""
    rank, size = init()
    told = {}

    def note(name, call):
        try:
            call()
        except (KerasRingError, TypeError, ValueError) as error:
            told[name] = f"{type(error).__name__}: {error}"

    x = mx.nd.ones((2,))
    note("array", lambda: kr.allreduce(np.ones(2)))
    note("sparse", lambda: kr.allreduce(x.reshape((1, 2)).tostype("csr")))
    note("op", lambda: kr.allreduce(x, "sum"))
    note("rank", lambda: kr.broadcast(x, size))
    note("adasum", lambda: kr.reducescatter(x, kr.Adasum))
    note("shapes", lambda: kr.allreduce(mx.nd.ones((rank + 1,))))
    note("params", lambda: kr.broadcast_parameters([x]))
    note("optimizer", lambda: kr.DistributedOptimizer("sgd"))
    net = make(rank)
    trainer = kr.DistributedTrainer(net.collect_params(), "sgd")
    note("apart", lambda: passed(net, *data(), BATCH, trainer.step))
    return told


def imported():
    """Returns the other frameworks that were imported."""
    init()
    kr.allreduce(mx.nd.ones((2,)))
    others = {"tensorflow", "keras", "torch", "jax"}
    return sorted(others & set(sys.modules))
