"""What an idle job on many hosts costs the host of its launcher.

    python -m benchmarks.idle_agents

The loop over agents is the launcher's own, with pipes to hosts that another
process pretends: each answers each sign of life, and says nothing else. Prints
milliseconds of processor time per second, in the median of `--seconds`, and
calls of Python functions per message, which do not depend on the machine.
"""

import argparse
import collections
import contextlib
import multiprocessing
import os
import resource
import selectors
import statistics
import sys
import time
from unittest import mock

from keras_ring.launch.agent_connection import AgentConnection
from keras_ring.launch.agent_loop import AgentLoop
from keras_ring.launch.cli.bench_arguments import parse_count
from keras_ring.launch.frames import GREETING, encode
from keras_ring.launch.hosts import HostRanks
from keras_ring.launch.output import Sink


class PretendedHost:
    """A host whose agent is this object: pipes, and no process.

    Args:
        number: Its index; it has one rank, of this number.
    """

    def __init__(self, number: int) -> None:
        stdin, our_stdin = os.pipe()
        our_stdout, stdout = os.pipe()
        our_stderr, stderr = os.pipe()
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        os.set_blocking(stdin, False)
        process = mock.Mock(
            stdin=os.fdopen(our_stdin, "wb", 0),
            stdout=os.fdopen(our_stdout, "rb", 0),
            stderr=os.fdopen(our_stderr, "rb", 0),
            wait=lambda patience=None: 0,
        )
        place = HostRanks(f"host{number}", range(number, number + 1), False)
        self.connection = AgentConnection(place, process)

    def say(self, kind: str, payload: bytes = b"", **fields: object) -> None:
        """Sends a message to the launcher."""
        os.write(self.stdout, encode(kind, payload, **fields))

    def greet(self) -> None:
        """Says that the agent runs."""
        os.write(self.stdout, GREETING)

    def heard(self) -> bytes:
        """Returns what the launcher has said since the last call."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.stdin, 1 << 20)
        return b""

    def close(self) -> None:
        """Ends the agent."""
        for fd in (self.stdin, self.stdout, self.stderr):
            os.close(fd)


def loop_over(hosts):
    """Returns the launcher's loop over these hosts, not entered."""
    loop = AgentLoop(
        (Sink(1), Sink(2)),
        on_signal=lambda number: None,
        on_loss=_lost,
        on_deaf=lambda: None,
    )
    for host in hosts:
        loop.add(host.connection)
    return loop


def _lost(agent, why):
    raise RuntimeError(f"{agent.host} was lost: {why}")


def _live(hosts):
    """Has all hosts answer the launcher as agents do."""
    selector = selectors.DefaultSelector()
    for host in hosts:
        host.greet()
        selector.register(host.stdin, selectors.EVENT_READ, host)
    while True:
        for key, _ in selector.select():
            if not key.data.heard():
                return
            key.data.say("alive", time=time.time())


def _seconds_of_processor(loop, seconds):
    """Returns the seconds of processor time of each second of an idle job."""
    taken = []
    for _ in range(seconds):
        end = time.monotonic() + 1.0
        began = time.process_time()
        while time.monotonic() < end:
            loop.step(end)
        taken.append(time.process_time() - began)
    return taken


def calls_per_message(loop, messages):
    """Returns how many functions the loop calls for each message it hears.

    Args:
        loop: That runs.
        messages: How many to wait for.
    """
    heard = collections.Counter()
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    def note(agent, frame):
        heard[agent] += 1

    before, loop.verbs["alive"] = loop.verbs["alive"], note
    sys.setprofile(count)
    try:
        while heard.total() < messages:
            loop.step(None)
    finally:
        sys.setprofile(None)
        loop.verbs["alive"] = before
    return calls / heard.total()


def measure(count, seconds):
    """Measures the loop over so many hosts.

    Returns:
        Median milliseconds of processor time per second, and calls per message.
    """
    hosts = [PretendedHost(number) for number in range(count)]
    living = multiprocessing.get_context("fork").Process(
        target=_live, args=(hosts,), daemon=True
    )
    living.start()
    for host in hosts:
        host.close()
    with loop_over(hosts) as loop:
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            loop.step(end)
        taken = _seconds_of_processor(loop, seconds)
        calls = calls_per_message(loop, min(200, 4 * count))
    living.terminate()
    living.join()
    for host in hosts:
        host.connection.end(0.0)
    return 1000 * statistics.median(taken), calls


def main():
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hosts", default="8,64,256,512")
    parser.add_argument("--seconds", type=parse_count, default=10)
    arguments = parser.parse_args()
    counts = [parse_count(word) for word in arguments.hosts.split(",")]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'hosts':>6} {'ms per second':>14} {'calls per message':>18}")
    for count in counts:
        taken, calls = measure(count, arguments.seconds)
        print(f"{count:>6} {taken:>14.1f} {calls:>18.1f}", flush=True)


if __name__ == "__main__":
    main()
