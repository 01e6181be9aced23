"""Compares reductions in a function that JAX compiles with JAX's own.

    keras-ring run -np 2 -- python benchmarks/jax_step.py

The arrays are the 161 gradients of ResNet-50, 102 MB of float32, which the
function makes of its argument. Ways take turns in each round, and the medians
of all rounds are printed, on rank 0:

none   no reduction
ours   `keras_ring.jax.allreduce` of all of them
each   the same, of each by itself
gloo   `jax.lax.psum` over the processes of `jax.distributed`, by Gloo
"""

import functools
import socket
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import keras_ring.jax as kr
from keras_ring.bench import shapes

FLAGS = flags.FLAGS

flags.DEFINE_integer("rounds", 12, "Steps that are measured of each way.")

_WARM_UP = 3


def _join_gloo():
    """Connects JAX's own processes, which are the same ranks."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = kr.broadcast_object(free.getsockname()[1])
    jax.distributed.initialize(f"127.0.0.1:{port}", kr.size(), kr.rank())


def _ways():
    """Returns functions that run a step and wait for it, by their names."""
    local = jax.local_devices()[0]
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    rows = NamedSharding(mesh, PartitionSpec("ranks"))

    def gradients(x):
        return [jnp.full(shape, x) for shape in shapes.resnet50()]

    @jax.jit
    def none(x):
        return gradients(x)

    @jax.jit
    def ours(x):
        return kr.allreduce(gradients(x), name="all")

    @jax.jit
    def each(x):
        return [
            kr.allreduce(gradient, name=f"each/{index}")
            for index, gradient in enumerate(gradients(x))
        ]

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=rows.spec, out_specs=PartitionSpec()
    )
    def gloo(x):
        return [
            jax.lax.pmean(gradient, "ranks") for gradient in gradients(x[0])
        ]

    mine = jax.device_put(jnp.float32(kr.rank() + 1), local)
    of_all = jax.make_array_from_process_local_data(
        rows, np.array([kr.rank() + 1], np.float32)
    )
    mean = (kr.size() + 1) / 2
    wanted = {"none": kr.rank() + 1, "ours": mean, "each": mean, "gloo": mean}
    made = {
        "none": functools.partial(none, mine),
        "ours": functools.partial(ours, mine),
        "each": functools.partial(each, mine),
        "gloo": functools.partial(gloo, of_all),
    }
    for name, step in made.items():
        found = jax.block_until_ready(step())
        for array in found:
            part = np.asarray(array.addressable_data(0))
            if not (part == wanted[name]).all():
                raise SystemExit(f"{name}: a result is wrong")
    return made


def main(argv):
    """Measures, and prints a table."""
    del argv
    kr.init()
    _join_gloo()
    ways = _ways()
    took = {name: [] for name in ways}
    for turn in range(_WARM_UP + FLAGS.rounds):
        for name, step in ways.items():
            kr.barrier()
            began = time.perf_counter()
            jax.block_until_ready(step())
            if turn >= _WARM_UP:
                took[name].append((time.perf_counter() - began) * 1e3)
    if kr.rank() == 0:
        for name, times in took.items():
            print(
                f"{name:5s} {statistics.median(times):6.1f} ms "
                f"({min(times):.1f} to {max(times):.1f})"
            )


if __name__ == "__main__":
    app.run(main)
