"""Trains a PyTorch model on ranks that share a device, by the C interface.

    python tests/gpu/torch_program.py LIBRARY [--device cpu] [--ranks 2 4]

LIBRARY is libkeras_ring.so. Nothing else of the package is needed, nor
TensorFlow: this is what tools/gpu_check.sh runs where there is a device. For
each number of ranks it checks collectives of tensors on the device, and that
the weights after some steps are those of one process that has the whole batch;
then it times steps with and without the reduction.
"""

import argparse
import ctypes
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import threading
import time

import c_interface
import torch
from c_interface import ALLGATHER, ALLREDUCE, ALLTOALL, AVERAGE, BROADCAST, SUM

_LIMIT = 60.0  # seconds that an operation may take


class Core(c_interface.Core):
    """Collectives of PyTorch's tensors."""

    def start(self, kind, tensor, name, op=SUM, root=0):
        """Starts a collective of a tensor, in place where it can be.

        Returns a function that waits for the result and returns it.
        """
        on_device = tensor.device.type == "cuda"
        encoded = name.encode()
        spec = self.spec(kind, encoded)
        shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        dtype = self.dtypes[str(tensor.dtype).removeprefix("torch.")]
        what = c_interface.TensorSpec(dtype, tensor.dim(), shape)
        spec.reduce_op, spec.root = op, root
        spec.device = int(on_device)
        spec.tensors, spec.num_tensors = ctypes.pointer(what), 1
        finished = threading.Event()
        outcome = {"error": None, "result": tensor}

        def done(_, status):
            if status:
                outcome["error"] = self.text(status)
            finished.set()

        def allocate(_, result, rows, memory):
            shape = (rows, *tensor.shape[1:])
            made = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
            if result == 1:
                made = torch.empty(rows, dtype=torch.int64)
            outcome["result" if result == 0 else "splits"] = made
            memory[0] = made.data_ptr()
            return None

        pointer = (ctypes.c_void_p * 1)(tensor.data_ptr())
        operation = c_interface.Operation()
        operation.inputs = pointer
        if kind in (ALLREDUCE, BROADCAST):
            operation.outputs = pointer
        operation.done = c_interface.DONE(done)
        operation.allocate = c_interface.ALLOCATE(allocate)
        operation.device_ordinal = tensor.device.index or 0
        if on_device:
            stream = torch.cuda.current_stream().cuda_stream
            operation.stream = stream
        self.enqueue(spec, operation)

        # What the runtime still uses.
        kept = [tensor, operation]

        def wait():
            if not finished.wait(_LIMIT):
                raise RuntimeError(f"{name}: not done in {_LIMIT} s")
            if outcome["error"]:
                raise RuntimeError(outcome["error"])
            kept.clear()
            return outcome["result"]

        return wait

    def run(self, *args, **kwargs):
        return self.start(*args, **kwargs)()


def _model(device):
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 512),
        torch.nn.Tanh(),
        torch.nn.Linear(512, 512),
        torch.nn.Tanh(),
        torch.nn.Linear(512, 10),
    ).to(device)


def _train(device, rank, size, core):
    """Returns the weights after some steps on this rank's part of batches."""
    model = _model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(7)
    waits = []
    for index, parameter in enumerate(model.parameters()):

        def hook(parameter, index=index):
            waits.append(
                core.start(ALLREDUCE, parameter.grad, f"g{index}", AVERAGE)
            )

        if core is not None:
            parameter.register_post_accumulate_grad_hook(hook)
    for _ in range(30):
        inputs = torch.randn(64, 64, generator=generator)
        labels = torch.randint(0, 10, (64,), generator=generator)
        part = slice(rank * 64 // size, (rank + 1) * 64 // size)
        optimizer.zero_grad()
        outputs = model(inputs[part].to(device))
        torch.nn.functional.cross_entropy(
            outputs, labels[part].to(device)
        ).backward()
        while waits:
            waits.pop()()
        optimizer.step()
    return torch.cat([p.detach().flatten().cpu() for p in model.parameters()])


def _check_collectives(core, device, rank, size):
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
        for count in (5, 100_000):
            tensor = torch.full((count,), rank + 1, dtype=dtype, device=device)
            # More work of the stream, which the collective must wait for.
            tensor = tensor * 2
            total = core.run(ALLREDUCE, tensor, f"sum {dtype} {count}")
            assert (total == size * (size + 1)).all(), (dtype, count)
    rows = torch.full((rank + 1, 3), float(rank), device=device)
    gathered = core.run(ALLGATHER, rows, "gather")
    expected = torch.cat(
        [torch.full((r + 1, 3), float(r)) for r in range(size)]
    )
    assert torch.equal(gathered.cpu(), expected)
    value = torch.full((7,), float(rank), device=device)
    core.run(BROADCAST, value, "broadcast", root=size - 1)
    assert (value == size - 1).all()
    sent = torch.arange(size * 2.0, device=device).reshape(size, 2) + 10 * rank
    received = core.run(ALLTOALL, sent, "exchange").cpu()
    for r in range(size):
        assert torch.equal(
            received[r], torch.tensor([2.0 * rank, 2.0 * rank + 1]) + 10 * r
        )


def _time_steps(core, device):
    """Returns median milliseconds: no reduction, reduction, that alone."""
    layers = [torch.nn.Linear(2048, 2048) for _ in range(12)]
    model = torch.nn.Sequential(*layers).to(device)
    inputs = torch.randn(512, 2048, device=device)
    waits = []
    reduces = False

    def synchronize():
        if device != "cpu":
            torch.cuda.synchronize()

    for index, parameter in enumerate(model.parameters()):

        def hook(parameter, index=index):
            if reduces:
                waits.append(
                    core.start(ALLREDUCE, parameter.grad, f"t{index}", AVERAGE)
                )

        parameter.register_post_accumulate_grad_hook(hook)

    def step():
        model(inputs).square().mean().backward()
        while waits:
            waits.pop()()

    def alone():
        for index, parameter in enumerate(model.parameters()):
            waits.append(
                core.start(ALLREDUCE, parameter.grad, f"a{index}", AVERAGE)
            )
        while waits:
            waits.pop()()

    def median(function):
        times = []
        for _ in range(9):
            synchronize()
            began = time.perf_counter()
            function()
            synchronize()
            times.append(1e3 * (time.perf_counter() - began))
        return statistics.median(times[2:])

    without = median(step)
    reduces = True
    return without, median(step), median(alone)


def _rank_main(args):
    rank = int(os.environ["KERAS_RING_RANK"])
    size = int(os.environ["KERAS_RING_SIZE"])
    core = Core(args.library)
    core.init()
    _check_collectives(core, args.device, rank, size)
    weights = _train(args.device, rank, size, core)
    times = _time_steps(core, args.device)
    core.shutdown()
    if rank:
        return
    alone = _train(args.device, 0, 1, None)
    print(
        json.dumps(
            {
                "difference": (weights - alone).abs().max().item(),
                "largest": alone.abs().max().item(),
                "times": times,
            }
        )
    )


def _run(args, size):
    listener = socket.create_server(("127.0.0.1", 0), backlog=size)
    port = listener.getsockname()[1]
    key = secrets.token_hex(32)
    ranks = []
    for rank in range(size):
        environment = dict(
            os.environ,
            KERAS_RING_RANK=str(rank),
            KERAS_RING_SIZE=str(size),
            KERAS_RING_RENDEZVOUS=f"127.0.0.1:{port}",
            KERAS_RING_JOB_KEY=key,
        )
        passed = ()
        if rank == 0:
            environment["KERAS_RING_RENDEZVOUS_FD"] = str(listener.fileno())
            passed = (listener.fileno(),)
        ranks.append(
            subprocess.Popen(
                [
                    *(sys.executable, __file__, args.library),
                    *("--device", args.device, "--rank"),
                ],
                env=environment,
                pass_fds=passed,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    outputs = []
    try:
        for process in ranks:
            outputs.append(process.communicate(timeout=100)[0])
    finally:
        for process in ranks:
            process.kill()
    if any(process.returncode for process in ranks):
        sys.exit(f"ranks ended with {[p.returncode for p in ranks]}")
    found = json.loads(outputs[0])
    without, reduced, alone = found["times"]
    print(
        f"{size} ranks: weights differ by {found['difference']:.1e} of"
        f" {found['largest']:.2f}; step {without:.2f} ms without reduction,"
        f" {reduced:.2f} ms with; the reduction alone {alone:.2f} ms"
    )
    if found["difference"] > 1e-4:
        sys.exit("the weights are others than those of one process")


def main():
    """Runs the ranks, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=os.path.abspath)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rank", action="store_true", help="is one of them")
    args = parser.parse_args()
    if args.rank:
        _rank_main(args)
        return
    for size in args.ranks:
        _run(args, size)


if __name__ == "__main__":
    main()
