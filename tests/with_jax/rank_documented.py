"""Runs examples of the documentation of JAX, in ranks."""

import contextlib
import os
import traceback
from pathlib import Path

# What examples leave to the reader.
PRELUDE = """
import jax
import jax.numpy as jnp
import optax
import keras_ring.jax as kr

x, y = jnp.ones((8, 4)), jnp.ones((8, 3))
batch = (x, y)
parameters = {"w": jnp.ones((4, 3))}
optimizer = optax.sgd(0.1)
loss, accuracy = jnp.float32(1.0), 0.5


def loss_of(parameters, batch):
    return ((batch[0] @ parameters["w"] - batch[1]) ** 2).mean()
"""
# What follows some examples, by their names: what they define is called.
THEN = {
    "jax.allreduce": """
loss, gradients = step(parameters, batch)
assert gradients["w"].shape == (4, 3)
""",
    "jax.DistributedOptimizer": """
parameters, state = step(parameters, state, batch)
""",
}


def _run(name, code, directory):
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    import keras_ring.jax as kr

    with contextlib.ExitStack() as stack:
        names = {"__name__": "__main__"}
        stack.callback(kr.shutdown)
        kr.init()
        exec(compile(PRELUDE, "<prelude>", "exec"), names)
        exec(compile(code, f"<{name}>", "exec"), names)
        exec(compile(THEN.get(name, ""), f"<after {name}>", "exec"), names)


def run(examples, directory):
    """Returns the tracebacks of the examples that fail, by their names."""
    failed = {}
    for name, code in examples:
        print(name, flush=True)
        try:
            place = f"{name.replace('/', '.')}.{os.getpid()}"
            _run(name, code, Path(directory) / place)
        except Exception:
            failed[name] = traceback.format_exc()
    return failed
