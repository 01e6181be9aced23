"""What ranks do with an Optax optimizer, beside one process."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import keras_ring.jax as kr

STEPS, ROWS = 6, 12


def _optimizers():
    return {
        "sgd": optax.sgd(0.05, momentum=0.9),
        "adam": optax.adam(0.01),
        "adamw": optax.adamw(0.01, weight_decay=0.1),
        "clipped": optax.chain(
            optax.clip_by_global_norm(0.1), optax.adam(0.01)
        ),
        "schedule": optax.sgd(optax.cosine_decay_schedule(0.1, STEPS)),
    }


def _data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(STEPS, ROWS, 5))
    return x, np.sin(x.sum(-1, keepdims=True))


def _parameters(seed):
    keys = jax.random.split(jax.random.key(seed), 2)
    return {
        "in": jax.random.normal(keys[0], (5, 8)),
        "out": jax.random.normal(keys[1], (8, 1)),
    }


def _loss(parameters, x, y):
    return (
        (jnp.tanh(x @ parameters["in"]) @ parameters["out"] - y) ** 2
    ).mean()


def _train(optimizer, parameters, state, batches):
    @jax.jit
    def step(parameters, state, x, y):
        gradients = jax.grad(_loss)(parameters, x, y)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    for x, y in batches:
        parameters, state = step(parameters, state, x, y)
    return parameters


def _largest_difference(one, other):
    return max(
        float(abs(a - b).max())
        for a, b in zip(
            jax.tree.leaves(one), jax.tree.leaves(other), strict=True
        )
    )


def beside_one_process():
    """Returns how far parameters are from those of one process, by a name."""
    jax.config.update("jax_enable_x64", True)
    kr.init()
    rank, size = kr.rank(), kr.size()
    x, y = _data()
    whole = list(zip(x, y, strict=True))
    parts = [(a[rank::size], b[rank::size]) for a, b in whole]
    apart = {}
    for name, optimizer in _optimizers().items():
        ours = kr.DistributedOptimizer(optimizer, name=name)
        parameters = kr.broadcast(_parameters(1 + rank))
        trained = _train(ours, parameters, ours.init(parameters), parts)
        alone = _train(
            optimizer, _parameters(1), optimizer.init(_parameters(1)), whole
        )
        apart[name] = _largest_difference(trained, alone)
        # The same bits on all ranks.
        of_rank_0 = kr.broadcast(trained)
        assert _largest_difference(trained, of_rank_0) == 0.0, name
    # Two passes on half of the rows each make one step.
    inner = optax.adam(0.01)
    ours = kr.DistributedOptimizer(
        inner, backward_passes_per_step=2, name="two"
    )
    halves = [(a[half::2], b[half::2]) for a, b in parts for half in range(2)]
    parameters = _parameters(1)
    trained = _train(ours, parameters, ours.init(parameters), halves)
    alone = _train(inner, parameters, inner.init(parameters), whole)
    apart["two passes"] = _largest_difference(trained, alone)
    # Their sum: as gradients that are twice as large.
    sgd = optax.sgd(0.01)
    ours = kr.DistributedOptimizer(
        sgd,
        backward_passes_per_step=2,
        average_aggregated_gradients=False,
        gradient_predivide_factor=2.0,
        name="sums",
    )
    trained = _train(ours, parameters, ours.init(parameters), halves)
    twice = optax.sgd(0.02)
    alone = _train(twice, parameters, twice.init(parameters), whole)
    apart["sums of passes"] = _largest_difference(trained, alone)
    return apart


def compressed():
    """Returns how far float16 on the wire takes the parameters."""
    jax.config.update("jax_enable_x64", True)
    kr.init()
    rank, size = kr.rank(), kr.size()
    x, y = _data()
    parts = [(a[rank::size], b[rank::size]) for a, b in zip(x, y, strict=True)]
    parameters = _parameters(1)
    found = []
    for compression in (kr.Compression.none, kr.Compression.fp16):
        ours = kr.DistributedOptimizer(
            optax.sgd(0.05), compression=compression, name=str(compression)
        )
        found.append(_train(ours, parameters, ours.init(parameters), parts))
    return _largest_difference(*found)


def refusals():
    """Returns what is said of arguments that are out of range."""
    kr.init()
    told = []
    for arguments in (
        {"backward_passes_per_step": 0},
        {"gradient_predivide_factor": 2.0, "op": kr.Sum},
    ):
        try:
            kr.DistributedOptimizer(optax.sgd(0.1), **arguments)
        except ValueError as error:
            told.append(str(error))
    return told


def metrics():
    kr.init()
    loss, accuracy = kr.metric_average((kr.rank() + 1, 0.5))
    return float(loss), float(accuracy)
