"""Compares a step of PyTorch with that of DistributedDataParallel over gloo.

    keras-ring run -np 2 -- python benchmarks/torch_step.py

The gradients are the 161 of ResNet-50, 102 MB of float32. A backward pass takes
a given time in all, spread over the parameters, in which it sleeps: so ranks
that share cores do not slow each other down by computing. Ways take turns in
each round, and the medians of all rounds are printed, on rank 0:

none    no reduction
ours    `keras_ring.torch.DistributedOptimizer`
ddp     `DistributedDataParallel`, gradients as views into buckets of 25 MB

All have the same allocator, so where keras_ring has replaced PyTorch's, which
saves page faults, the others gain from it, too.
"""

import os
import socket
import statistics
import time

import torch
import torch.distributed
from absl import app, flags
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import keras_ring.torch as kr
from keras_ring.bench import shapes
from keras_ring.torch import arena
from keras_ring.torch.gradient_reducer import GradientReducer

FLAGS = flags.FLAGS

flags.DEFINE_integer("rounds", 12, "Steps that are measured of each way.")
flags.DEFINE_multi_float(
    "backward", [0.0, 100.0, 300.0], "Milliseconds of a backward pass."
)

_WARM_UP = 3


class _Layer(torch.autograd.Function):
    """Passes its input on, and makes a gradient backwards, after a while."""

    @staticmethod
    def forward(ctx, x, parameter, seconds):
        ctx.parameter, ctx.seconds = parameter, seconds
        return x + 0

    @staticmethod
    def backward(ctx, gradient):
        if ctx.seconds:
            time.sleep(ctx.seconds)
        return gradient, torch.ones_like(ctx.parameter), None


class Model(nn.Module):
    """Layers that do nothing but make gradients."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.zeros(shape)) for shape in shapes.resnet50()
        )
        self.seconds = 0.0

    def forward(self, x):
        """Returns a scalar that depends on all parameters."""
        for weight in self.weights:
            x = _Layer.apply(x, weight, self.seconds / len(self.weights))
        return x.sum()


def _join_gloo():
    """Makes a process group of the same ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = kr.broadcast_object(free.getsockname()[1])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group(
        "gloo", rank=kr.rank(), world_size=kr.size()
    )


def _ways():
    """Returns the models by the names of ways, and the parameters of each."""
    none, ours, inner = Model(), Model(), Model()
    kr.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), 0.0), ours.named_parameters()
    )
    ddp = DistributedDataParallel(inner, gradient_as_bucket_view=True)
    return {"none": (none, none), "ours": (ours, ours), "ddp": (ddp, inner)}


def _step(model, inner):
    """Returns the milliseconds of a forward and a backward pass."""
    for weight in inner.weights:
        if model is inner:
            weight.grad = None  # DDP has views, which stay
    x = torch.ones(1, requires_grad=True)
    kr.barrier()
    began = time.perf_counter()
    model(x).backward()
    took = time.perf_counter() - began
    kr.barrier()
    return took * 1e3


def _time_hooks():
    """Returns a list that gets the microseconds of each hook."""
    times = []
    make = GradientReducer._hook_of

    def make_timed(self, bucket, parameter):
        hook = make(self, bucket, parameter)

        def timed(gradient):
            began = time.perf_counter()
            hook(gradient)
            times.append((time.perf_counter() - began) * 1e6)

        return timed

    GradientReducer._hook_of = make_timed
    return times


def main(argv):
    """Measures, and prints a table."""
    del argv
    torch.set_num_threads(1)
    kr.init()
    _join_gloo()
    times = _time_hooks()
    ways = _ways()
    if kr.rank() == 0:
        print(
            f"torch {torch.__version__}, {kr.size()} ranks, allocator "
            f"{'in the arena' if arena.is_built() else 'of PyTorch'}"
        )
        print(
            f"{'backward':>8} {'none':>8} {'ours':>8} {'ddp':>8}  ours / ddp"
            "  us of a hook: median, mean"
        )
    for milliseconds in FLAGS.backward:
        found = {name: [] for name in ways}
        times.clear()
        for turn in range(_WARM_UP + FLAGS.rounds):
            for name, (model, inner) in ways.items():
                inner.seconds = milliseconds / 1e3
                took = _step(model, inner)
                if turn >= _WARM_UP:
                    found[name].append(took)
        none, ours, ddp = map(statistics.median, found.values())
        if kr.rank() == 0:
            print(
                f"{milliseconds:8.0f} {none:8.1f} {ours:8.1f} {ddp:8.1f}"
                f"  {ours / ddp:10.2f}  {statistics.median(times):.1f}"
                f" {statistics.fmean(times):.1f}",
                flush=True,
            )
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    app.run(main)
