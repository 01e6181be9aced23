"""Kills ranks that have much memory, and says how soon the others know.

    python -m tests.multiprocess.failures.deaths --kills 50
    python -m tests.multiprocess.failures.deaths --kills 50 --hosts 2 --lab

The ranks use the core alone, by its C interface, and are forks of this process,
so that a job costs milliseconds. `heard` is the time from `kill -9` of a rank
until the last of the others has the error of the operation that it waits for;
`gone` that until its memory is free. The kernel does that before it closes the
connections, unless the rank is the only one of its host, and has a process that
holds the memory. Hosts are pretended ones, whose ranks
meet by TCP on this machine, or with `--lab` such with a network each.
"""

import argparse
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import json
import mmap
import os
import secrets
import select
import signal
import socket
import statistics
import threading
import time
import traceback
from pathlib import Path

import keras_ring
from tests.gpu import c_interface
from tests.lab import lab

_LIBRARY = Path(keras_ring.__file__).with_name("libkeras_ring.so")
_CLONE_NEWNET = 0x40000000


@dataclasses.dataclass
class Death:
    """How a rank died.

    Args:
        heard: Seconds until every other rank had the error.
        gone: Seconds until the process had ended.
        texts: The errors of the others.
    """

    heard: float
    gone: float
    texts: list[str]


def touch(gib):
    """Returns as much memory as said, all of it there, in small pages.

    The kernel frees huge pages many times as fast.
    """
    length = max(int(gib * (1 << 30)), mmap.PAGESIZE)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, length, flags=flags)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    page = memoryview(memory).cast("B")
    for start in range(0, length, 64 << 20):
        part = page[start : start + (64 << 20)]
        part[:: mmap.PAGESIZE] = bytes(len(part[:: mmap.PAGESIZE]))
    return memory


def _begin_barrier(core, ended):
    """Begins one; `ended` gets the text of its error. Returns what it uses."""
    spec = core.spec(c_interface.BARRIER, b"b")
    operation = c_interface.Operation()
    operation.done = c_interface.DONE(
        lambda _, status: ended(core.text(status))
    )
    core.enqueue(spec, operation)
    return operation


def _run_rank(core, pipe, gib, is_victim):
    core.init()
    memory = touch(gib if is_victim else 0)
    over = threading.Event()
    error = []

    def ended(text):
        error.extend((time.monotonic(), text))
        over.set()

    pending = None if is_victim else _begin_barrier(core, ended)
    os.write(pipe, b"ready\n")
    over.wait()
    os.write(pipe, json.dumps(error).encode())
    del memory, pending


def _enter_network(host):
    """Takes this thread to the network of a host of the lab."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/kr-h{host}").open("rb") as network:
        if libc.setns(network.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to host {host}")


def _listen(host, in_lab):
    """Returns a listener that ranks of all hosts reach, and its address."""
    if not in_lab:
        listener = socket.create_server(("127.0.0.1", 0))
        return listener, f"127.0.0.1:{listener.getsockname()[1]}"

    def listen():
        _enter_network(host)
        return socket.create_server(("", 0))

    # The network is that of the thread, and a listener keeps its own.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        listener = thread.submit(listen).result()
    return listener, f"10.77.0.{host + 1}:{listener.getsockname()[1]}"


def _holders_of(pid):
    """Returns pidfds of the processes that hold a rank's memory, if any."""
    children = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        # A thread may have ended since.
        with contextlib.suppress(FileNotFoundError):
            children += [int(child) for child in path.read_text().split()]
    return [
        os.pidfd_open(child)
        for child in children
        if Path(f"/proc/{child}/comm").read_text().strip() == "kr-holder"
    ]


def _await_end(pidfd):
    with os.fdopen(pidfd):
        select.select([pidfd], [], [])


def kill(num_ranks, victim, gib, *, hosts=None, in_lab=False, limit=120):
    """Runs a job, and kills a rank; returns a `Death`.

    Args:
        num_ranks: Of the job.
        victim: The rank that is killed.
        gib: What it has touched.
        hosts: For each rank, the number of its host; `None`: all are on one.
        in_lab: Whether these are hosts of the lab, which is up.
        limit: Seconds after which all ranks end.
    """
    core = c_interface.Core(str(_LIBRARY))
    hosts = hosts or [0] * num_ranks
    with contextlib.ExitStack() as stack:
        listener, address = _listen(hosts[0], in_lab)
        stack.enter_context(listener)
        os.environ.update(
            KERAS_RING_SIZE=str(num_ranks),
            KERAS_RING_RENDEZVOUS=address,
            KERAS_RING_JOB_KEY=secrets.token_hex(32),
            KERAS_RING_FLIGHT_DIRECTORY="off",
            KERAS_RING_LOG_LEVEL="off",
        )
        pids, pipes = [], []
        for rank in range(num_ranks):
            readable, writable = os.pipe()
            pids.append(os.fork())
            if pids[-1] == 0:
                code = 1
                try:
                    signal.alarm(limit)
                    os.environ["KERAS_RING_RANK"] = str(rank)
                    os.environ["KERAS_RING_HOST_ID"] = f"host{hosts[rank]}"
                    if in_lab:
                        _enter_network(hosts[rank])
                    if rank == 0:
                        descriptor = str(listener.fileno())
                        os.environ["KERAS_RING_RENDEZVOUS_FD"] = descriptor
                    _run_rank(core, writable, gib, rank == victim)
                    code = 0
                except Exception:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            os.close(writable)
            pipes.append(stack.enter_context(os.fdopen(readable, "rb")))
        for rank, pipe in enumerate(pipes):
            if pipe.readline() != b"ready\n":
                raise RuntimeError(f"rank {rank} did not start")
        holders = _holders_of(pids[victim])
        killed = time.monotonic()
        os.kill(pids[victim], signal.SIGKILL)
        os.waitpid(pids[victim], 0)
        for holder in holders:
            _await_end(holder)
        gone = time.monotonic() - killed
        told = [
            json.loads(pipe.read())
            for rank, pipe in enumerate(pipes)
            if rank != victim
        ]
        for rank, pid in enumerate(pids):
            if rank != victim:
                os.waitpid(pid, 0)
    return Death(
        heard=max(when for when, _ in told) - killed,
        gone=gone,
        texts=[text for _, text in told],
    )


def main():
    """Prints a row of a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="of each size")
    parser.add_argument(
        "--gib", type=float, nargs="+", default=[0, 1, 4, 8], help="sizes"
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument(
        "--lab", action="store_true", help="hosts have networks of their own"
    )
    options = parser.parse_args()
    with lab.lab(options.hosts) if options.lab else contextlib.nullcontext():
        _print_table(options)


def _print_table(options):
    hosts = [
        rank * options.hosts // options.ranks for rank in range(options.ranks)
    ]
    print("| GiB | kills | heard, ms: median | max | gone, ms: median | max |")
    print("|---|---|---|---|---|---|")
    for gib in options.gib:
        deaths = [
            kill(
                options.ranks,
                index % options.ranks,
                gib,
                hosts=hosts,
                in_lab=options.lab,
            )
            for index in range(options.kills)
        ]
        row = [f"{gib:g}", str(len(deaths))]
        for times in (
            [1e3 * death.heard for death in deaths],
            [1e3 * death.gone for death in deaths],
        ):
            row += [f"{statistics.median(times):.1f}", f"{max(times):.1f}"]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
