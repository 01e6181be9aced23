"""Compares a training of Keras on JAX with the reductions of JAX itself.

    keras-ring run -np 2 -- python benchmarks/keras_jax_fit.py

Each way trains the same model on the same batches by `train_function`, which
`fit` calls for each batch. Ways take turns in each round of steps, and medians
of a step over the rounds are printed, on rank 0:

none   a plain optimizer: each rank trains alone
ours   `kr.DistributedOptimizer`, in the step that Keras compiles
gloo   Keras' own step in a `jax.shard_map` over the processes of
       `jax.distributed`, where `jax.lax.pmean` averages by Gloo
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import itertools
import socket
import statistics
import time

import jax
import keras
import numpy as np
from absl import app, flags
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("rounds", 9, "Rounds that are measured of each way.")
flags.DEFINE_integer("steps", 10, "Steps of a round.")

_BATCH = 32  # of a rank


def _join_gloo():
    """Connects JAX's own processes, which are the same ranks."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = kr.broadcast_object(free.getsockname()[1])
    jax.distributed.initialize(f"127.0.0.1:{port}", kr.size(), kr.rank())


def _dense():
    layers = [keras.layers.Dense(1024, "relu") for _ in range(3)]
    return keras.Sequential([keras.Input((256,)), *layers]), (256,), 1024


def _convolutions():
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    return model, (16, 16, 3), 10


def _made(make, optimizer):
    keras.utils.set_random_seed(1)
    model, shape, units = make()
    model.compile(optimizer, "mse")
    random = np.random.default_rng(kr.rank())
    x = random.normal(size=(_BATCH, *shape)).astype("float32")
    y = random.normal(size=(_BATCH, units)).astype("float32")
    return model, x, y


def _by_keras(make, optimizer):
    """Returns a function that runs some steps and waits for them."""
    model, x, y = _made(make, optimizer)
    # Builds, and compares the ranks.
    model.fit(x, y, batch_size=_BATCH, verbose=0)
    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
        purge_model_variables=True,
    )
    batches = itertools.repeat((x, y))

    def run(steps):
        nonlocal state
        for _ in range(steps):
            logs, state = model.train_function(state, batches)
        jax.block_until_ready(logs)

    return run, lambda: state[0]


def _by_gloo(make, optimizer):
    model, x, y = _made(make, optimizer)
    model.optimizer.build(model.trainable_variables)
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    of_ranks, of_all = PartitionSpec("ranks"), PartitionSpec()
    rows = NamedSharding(mesh, of_ranks)

    def loss_of(trained, others, x, y):
        predicted, others = model.stateless_call(trained, others, x)
        return keras.ops.mean(keras.ops.square(predicted - y)), others

    def step(state, x, y):
        trained, others, of_optimizer = state
        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            trained, others, x, y
        )
        gradients = jax.lax.pmean(gradients, "ranks")
        trained, of_optimizer = model.optimizer.stateless_apply(
            of_optimizer, gradients, trained
        )
        loss = jax.lax.pmean(loss, "ranks")
        return loss, (trained, others, of_optimizer)

    compiled = jax.jit(
        jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(of_all, of_ranks, of_ranks),
            out_specs=(of_all, of_all),
            check_vma=False,
        ),
        donate_argnums=0,
    )
    variables = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
    )
    everywhere = NamedSharding(mesh, of_all)
    state = tuple(
        [
            jax.make_array_from_process_local_data(
                everywhere, np.asarray(each.value)
            )
            for each in some
        ]
        for some in variables
    )
    x, y = (jax.make_array_from_process_local_data(rows, v) for v in (x, y))

    def run(steps):
        nonlocal state
        with kr.allow_local_updates():
            for _ in range(steps):
                loss, state = compiled(state, x, y)
        jax.block_until_ready(loss)

    # The step that Keras has made in `fit`.
    run(1)
    return run, lambda: [each.addressable_data(0) for each in state[0]]


def _check(ways):
    """Raises an error unless both ways to average train the same weights."""
    (_, ours), (_, gloo) = ways["ours"], ways["gloo"]
    for mine, its in zip(ours(), gloo(), strict=True):
        np.testing.assert_allclose(
            np.asarray(mine), np.asarray(its), rtol=1e-4, atol=1e-5
        )


def main(argv):
    """Measures, and prints a table."""
    del argv
    kr.init()
    _join_gloo()
    for make in (_dense, _convolutions):
        with kr.allow_local_updates():
            none = _by_keras(make, keras.optimizers.SGD(0.01))
        ways = {
            "none": none,
            "ours": _by_keras(
                make, kr.DistributedOptimizer(keras.optimizers.SGD(0.01))
            ),
            "gloo": _by_gloo(make, keras.optimizers.SGD(0.01)),
        }
        _check(ways)
        took = {name: [] for name in ways}
        for turn in range(1 + FLAGS.rounds):
            for name, (run, _) in ways.items():
                kr.barrier()
                began = time.perf_counter()
                run(FLAGS.steps)
                if turn:
                    seconds = time.perf_counter() - began
                    took[name].append(seconds * 1e3 / FLAGS.steps)
        if kr.rank() == 0:
            for name, times in took.items():
                print(
                    f"{make.__name__[1:]:12s} {name:5s} "
                    f"{statistics.median(times):6.2f} ms "
                    f"({min(times):.2f} to {max(times):.2f})"
                )


if __name__ == "__main__":
    app.run(main)
