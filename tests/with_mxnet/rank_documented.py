"""Runs examples of the documentation of MXNet, in ranks."""

import contextlib
import os
import traceback
import warnings
from pathlib import Path

# What examples leave to the reader.
PRELUDE = """
import mxnet as mx
from mxnet import gluon
import keras_ring.mxnet as kr

net = gluon.nn.Dense(3, in_units=4)
net.initialize()
x, y = mx.nd.ones((8, 4)), mx.nd.ones((8,))
statistics = mx.nd.ones((4,))
gradients = [mx.nd.ones((4,)), mx.nd.ones((2, 2))]
seeds = mx.nd.ones((4,))
loss, count = mx.nd.ones((1,)), mx.nd.ones((1,))
kr.broadcast_parameters(net.collect_params(), root_rank=0)


class module:
    @staticmethod
    def init_optimizer(kvstore, optimizer):
        assert kvstore is None
        optimizer.rescale_grad = 0.5
        assert optimizer.inner.rescale_grad == 0.5
"""


def _run(name, code, directory):
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import keras_ring.mxnet as kr

        with contextlib.ExitStack() as stack:
            names = {"__name__": "__main__"}
            stack.callback(kr.shutdown)
            kr.init()
            exec(compile(PRELUDE, "<prelude>", "exec"), names)
            exec(compile(code, f"<{name}>", "exec"), names)


def run(examples, directory):
    """Returns the tracebacks of the examples that fail, by their names."""
    failed = {}
    for name, code in examples:
        print(name, flush=True)
        try:
            folder = f"{name.replace('/', '.')}.{os.getpid()}"
            _run(name, code, Path(directory) / folder)
        except Exception:
            failed[name] = traceback.format_exc()
    return failed
