"""Elastic jobs of ranks that are forks of this process.

    python -m tests.multiprocess.elastic.forked_job --kills 200

The ranks use the core alone, by its C interface, so that a job costs
milliseconds. Each step they sum some tensors and ask for a commit; if the step
is committed, they add the sums to their weights, and note a digest of them.
Ranks are killed at random moments, until one is left. What the ranks have noted
must be alike, step by step.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import mmap
import os
import random
import secrets
import selectors
import signal
import socket
import statistics
import threading
import time
import traceback
import zlib
from pathlib import Path

import numpy as np

import keras_ring
from keras_ring.launch.elastic.authority import Authority
from keras_ring.launch.elastic.messages import MOST_BYTES, decode_report
from tests.gpu import c_interface

_LIBRARY = Path(keras_ring.__file__).with_name("libkeras_ring.so")
_GROUP = b"weights"
_MOST_RANKS = 16
_FOREVER = 1 << 60


@dataclasses.dataclass
class Outcome:
    """What ranks have noted, and how soon they went on.

    Args:
        notes: For each rank that was not killed, its steps: whether committed,
            the ranks that the sum is of (as bits), a digest of the weights, and
            a sum after the step, of the ranks as well.
        went_on: Seconds from each kill to the first step that was committed
            after the change.
        discarded: Integer, the steps that were discarded, of one rank.
        changes: The `Change`s of the authority.
    """

    notes: dict[int, list]
    went_on: list[float]
    discarded: int
    changes: list


class Board:
    """Numbers that the ranks and the test share."""

    def __init__(self):
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._numbers = np.frombuffer(self._memory, np.int64)
        self.stop_at = _FOREVER

    @property
    def stop_at(self):
        """The number of committed steps after which the ranks end."""
        return int(self._numbers[0])

    @stop_at.setter
    def stop_at(self, value):
        self._numbers[0] = value

    def committed(self, member):
        """Returns how many steps a rank has committed, and with whom."""
        return (
            int(self._numbers[1 + 2 * member]),
            int(self._numbers[2 + 2 * member]),
        )

    def note(self, member, committed, contributors):
        self._numbers[2 + 2 * member] = contributors
        self._numbers[1 + 2 * member] = committed


class Trainer:
    """The weights of a rank, and its steps.

    Args:
        core: `c_interface.Core`, not initialized.
        member: Integer, the rank that it was started as.
        sizes: The number of elements of each weight.
    """

    def __init__(self, core, member, sizes):
        self._core = core
        self._member = member
        self.weights = [np.zeros(size, np.float32) for size in sizes]
        self._gradients = [np.zeros(size, np.float32) for size in sizes]
        self._sums = [np.zeros(size, np.float32) for size in sizes]
        self._left = 0
        self._errors = []
        self._idle = threading.Condition()
        self._kept = []
        self._requests = [
            self._request(f"g{number}".encode(), size)
            for number, size in enumerate(sizes)
        ]
        # Of no step.
        self._metric = self._request(b"metric", 1, group=None)
        self._done = c_interface.DONE(self._on_done)
        self._on_commit = c_interface.COMMITTED(self._on_committed)
        self._committed = None

    def _request(self, name, size, group=_GROUP):
        spec = self._core.spec(c_interface.ALLREDUCE, name)
        dimensions = (ctypes.c_int64 * 1)(size)
        tensor = c_interface.TensorSpec(
            self._core.dtypes["float32"], 1, dimensions
        )
        spec.reduce_op = c_interface.SUM
        spec.tensors, spec.num_tensors = ctypes.pointer(tensor), 1
        if group is not None:
            spec.commit_group, spec.commit_group_bytes = group, len(group)
        self._kept += [name, dimensions, tensor]
        return self._core.request(spec)

    def _on_done(self, _, status):
        with self._idle:
            if status:
                self._errors.append(self._core.text(status))
            self._left -= 1
            self._idle.notify()

    def _on_committed(self, _, status, committed):
        with self._idle:
            if status:
                self._errors.append(self._core.text(status))
            self._committed = committed
            self._left -= 1
            self._idle.notify()

    def _await(self):
        with self._idle:
            while self._left:
                self._idle.wait()
        if self._errors:
            raise RuntimeError("; ".join(self._errors))

    def step(self, number):
        """Runs a step; returns whether it counts, and whose it was, as bits."""
        self._left = len(self._requests)
        for index, request in enumerate(self._requests):
            gradient = self._gradients[index]
            gradient[:] = 1e-3 * (number % 97) * (index + 1)
            gradient[0] = 1 << self._member
            self._submit(request, gradient, self._sums[index])
        self._await()
        self._left = 1
        self._core.commit(_GROUP, self._on_commit)
        self._await()
        if not self._committed:
            return False, 0
        whose = int(self._sums[0][0])
        for weight, total in zip(self.weights, self._sums, strict=True):
            weight += total
        return True, whose

    def metric(self):
        """Returns a sum over the ranks, that of no step."""
        value = np.array([1 << self._member], np.float32)
        total = np.zeros(1, np.float32)
        self._left = 1
        self._submit(self._metric, value, total)
        self._await()
        return int(total[0])

    def _submit(self, request, values, total):
        operation = c_interface.Operation(
            inputs=(ctypes.c_void_p * 1)(values.ctypes.data),
            outputs=(ctypes.c_void_p * 1)(total.ctypes.data),
            done=self._done,
        )
        self._core.enqueue_request(request, operation)

    def digest(self):
        total = 0
        for weight in self.weights:
            total = zlib.crc32(weight.tobytes(), total)
        return total


def _run_rank(core, member, sizes, board, pipe):
    core.init()
    trainer = Trainer(core, member, sizes)
    notes, committed, number = [], 0, 0
    while committed < board.stop_at:
        counts, whose = trainer.step(number)
        number += 1
        committed += counts
        notes.append((bool(counts), whose, trainer.digest(), trainer.metric()))
        board.note(member, committed, whose)
    core.shutdown()
    with os.fdopen(pipe, "w") as out:
        json.dump(notes, out)


class ForkedJob:
    """A job, and the authority over it. A context manager.

    Args:
        num_ranks: Integer, how many it begins with.
        sizes: The number of elements of each weight.
        limit: Integer, the seconds after which all ranks end.
    """

    def __init__(self, num_ranks, sizes=(3, 1000, 40000, 17), *, limit=60):
        self.board = Board()
        self.authority = Authority(range(num_ranks))
        self.alive = set(range(num_ranks))
        self._pids, self._pipes, self._sockets = [], [], []
        self._selector = selectors.DefaultSelector()
        self._stack = contextlib.ExitStack()
        core = c_interface.Core(str(_LIBRARY))
        listener = socket.create_server(("127.0.0.1", 0))
        os.environ.update(
            KERAS_RING_SIZE=str(num_ranks),
            KERAS_RING_RENDEZVOUS=f"127.0.0.1:{listener.getsockname()[1]}",
            KERAS_RING_JOB_KEY=secrets.token_hex(32),
            KERAS_RING_FLIGHT_DIRECTORY="off",
            KERAS_RING_STATUS_DIR="off",
        )
        os.environ.setdefault("KERAS_RING_LOG_LEVEL", "error")
        pairs = [
            socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for _ in range(num_ranks)
        ]
        for rank in range(num_ranks):
            readable, writable = os.pipe()
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    signal.alarm(limit)
                    for ours, theirs in pairs:
                        ours.close()
                        if theirs is not pairs[rank][1]:
                            theirs.close()
                    os.environ["KERAS_RING_RANK"] = str(rank)
                    os.environ["KERAS_RING_MEMBERSHIP_FD"] = str(
                        pairs[rank][1].fileno()
                    )
                    if rank == 0:
                        os.environ["KERAS_RING_RENDEZVOUS_FD"] = str(
                            listener.fileno()
                        )
                    else:
                        listener.close()
                    _run_rank(core, rank, sizes, self.board, writable)
                    code = 0
                except Exception:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            os.close(writable)
            self._pids.append(pid)
            self._pipes.append(self._stack.enter_context(os.fdopen(readable)))
        listener.close()
        for rank, (ours, theirs) in enumerate(pairs):
            theirs.close()
            self._sockets.append(self._stack.enter_context(ours))
            self._selector.register(ours, selectors.EVENT_READ, rank)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        for member in self.alive:
            os.kill(self._pids[member], signal.SIGKILL)
            os.waitpid(self._pids[member], 0)
        self._selector.close()
        self._stack.close()

    def serve(self, seconds, until=lambda: False):
        """Answers ranks for so long. Returns whether `until` came true."""
        end = time.monotonic() + seconds
        while not until():
            left = end - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self._selector.select(min(left, 0.001)):
                data = key.fileobj.recv(MOST_BYTES)
                if not data:
                    self._selector.unregister(key.fileobj)
                    continue
                report = decode_report(data)
                self._send(self.authority.on_report(key.data, report))
        return True

    def _send(self, messages):
        for member, message in messages.items():
            if member in self.alive:
                self._sockets[member].send(message)

    def kill(self, member):
        """Kills a rank, and tells the authority when it has ended."""
        os.kill(self._pids[member], signal.SIGKILL)
        os.waitpid(self._pids[member], 0)
        self.alive.discard(member)
        self._send(self.authority.on_deaths([member]))

    def await_alone(self, seconds=20):
        """Waits until those who live have committed a step among themselves."""
        whose = sum(1 << member for member in self.alive)
        return self.serve(
            seconds,
            lambda: all(
                self.board.committed(member)[1] == whose
                for member in self.alive
            ),
        )

    def finish(self, steps=20):
        """Lets the ranks end after some more steps; returns their notes."""
        most = max(self.board.committed(member)[0] for member in self.alive)
        self.board.stop_at = most + steps
        notes = {}
        for member in sorted(self.alive):
            # Short enough to fit into the pipe, or read while it is written.
            reader = threading.Thread(
                target=lambda m=member: notes.update({m: self._pipes[m].read()})
            )
            reader.start()
            if not self.serve(20, lambda t=reader: not t.is_alive()):
                raise TimeoutError(f"rank {member} does not end")
        for member in sorted(self.alive):
            _, status = os.waitpid(self._pids[member], 0)
            if status:
                raise RuntimeError(f"rank {member} ended with {status}")
        self.alive.clear()
        return {member: json.loads(text) for member, text in notes.items()}


def run(num_ranks, seed, *, survivors=1, pause=0.05, sizes=(3, 1000, 40000)):
    """Runs a job whose ranks are killed in turn; returns an `Outcome`."""
    draw = random.Random(seed)
    went_on = []
    with ForkedJob(num_ranks, sizes) as job:
        if not job.await_alone():
            raise TimeoutError("the job does not start")
        while len(job.alive) > survivors:
            job.serve(draw.uniform(0, pause))
            victim = draw.choice(sorted(job.alive))
            killed = time.monotonic()
            job.kill(victim)
            if not job.await_alone():
                raise TimeoutError(f"no step after the kill of {victim}")
            went_on.append(time.monotonic() - killed)
        notes = job.finish()
        changes = job.authority.changes
    first = next(iter(notes.values()))
    return Outcome(
        notes=notes,
        went_on=went_on,
        discarded=sum(not note[0] for note in first),
        changes=changes,
    )


def check(outcome, num_ranks):
    """Raises if ranks differ, or a sum is not of the members of its time."""
    all_notes = list(outcome.notes.values())
    for notes in all_notes[1:]:
        assert notes == all_notes[0]
    members = [(1 << num_ranks) - 1]
    members += [
        sum(1 << each for each in change.members) for change in outcome.changes
    ]
    position = 0
    for counts, whose, _, metric in all_notes[0]:
        # The members never grow again, nor does the metric.
        for seen in (whose, metric) if counts else (metric,):
            while seen != members[position]:
                position += 1


def main():
    """Prints what kills have cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--survivors", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    went_on, discarded, changes, seed = [], 0, 0, options.seed
    while len(went_on) < options.kills:
        outcome = run(options.ranks, seed, survivors=options.survivors)
        check(outcome, options.ranks)
        went_on += outcome.went_on
        discarded += outcome.discarded
        changes += len(outcome.changes)
        seed += 1
    times = sorted(1e3 * each for each in went_on)
    print(
        f"{len(times)} kills, {changes} generations, {discarded} steps"
        f" discarded; good step after {statistics.median(times):.1f} ms in the"
        f" median, {times[int(0.95 * len(times))]:.1f} in 95 of 100, at most"
        f" {times[-1]:.1f}"
    )


if __name__ == "__main__":
    main()
