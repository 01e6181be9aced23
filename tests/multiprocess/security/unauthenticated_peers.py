"""Bad connections to ranks that train, and what they cost; run by hand.

    python -m tests.multiprocess.security.unauthenticated_peers

fits a model on two ranks; in every other window of time, unauthenticated peers
connect to them.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.harness import run_ranks
from tests.multiprocess.failures import rank_jobs
from tests.multiprocess.security.bad_connections import UnauthenticatedPeers
from tests.multiprocess.security.test_unauthenticated_peers import ports_of


class Windows:
    """Alternating windows, every other one with such peers.

    Args:
        connections: How many there are in all.
        seconds: How long a window is.
        pairs: How many windows of each sort.
    """

    def __init__(self, connections: int, seconds: float, pairs: int) -> None:
        self._connections = connections
        self._seconds = seconds
        self._pairs = pairs
        self.quiet: list[tuple[float, float]] = []
        self.disturbed: list[tuple[float, float]] = []
        self.own_cpu = 0.0

    def run(self, peers: UnauthenticatedPeers, ports: list[int]) -> None:
        """Goes through all windows."""
        made = 0
        kinds = list(peers.kinds)
        for pair in range(self._pairs):
            self.quiet.append(self._window(lambda: False))
            goal = self._connections * (pair + 1) // self._pairs
            begin, first = time.monotonic(), made
            per_second = (goal - first) / self._seconds

            def knock(
                begin: float = begin,
                first: int = first,
                goal: int = goal,
                per_second: float = per_second,
            ) -> bool:
                nonlocal made
                due = first + per_second * (time.monotonic() - begin)
                if made >= min(due, goal):
                    return False
                port = ports[made // len(kinds) % len(ports)]
                peers.knock(kinds[made % len(kinds)], port)
                made += 1
                return True

            before = time.thread_time()
            self.disturbed.append(self._window(knock))
            while made < goal:
                knock(per_second=float("inf"))
            self.own_cpu += time.thread_time() - before
            peers.close()

    def _window(self, act) -> tuple[float, float]:
        begin = time.monotonic()
        while time.monotonic() < begin + self._seconds:
            if not act():
                time.sleep(0.002)
        return begin, time.monotonic()


def steps_per_second(ends: list[float], window: tuple[float, float]) -> float:
    """Returns how many steps ended in a window, per second of it."""
    begin, end = window
    return sum(begin <= at < end for at in ends) / (end - begin)


def main() -> None:
    """Runs it and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--window", type=float, default=0.8, metavar="S")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--width", type=int, default=512)
    arguments = parser.parse_args()
    windows = Windows(arguments.connections, arguments.window, arguments.pairs)
    made: dict[str, int] = {}

    with tempfile.TemporaryDirectory(prefix="kr-peers-") as name:
        stop, bomb = Path(name) / "stop", Path(name) / "bomb"
        key_path = Path(name) / "key"

        def disturb(running):
            try:
                for rank in range(2):
                    running.wait_for(rank, "training", timeout=120)
                time.sleep(3.0)  # the first steps are slower
                with contextlib.closing(
                    UnauthenticatedPeers(key_path.read_text(), bomb)
                ) as peers:
                    windows.run(peers, ports_of(running.pids))
                    made.update(peers.counts)
            finally:
                stop.touch()

        result = run_ranks(
            rank_jobs.fit_until,
            2,
            args=(str(stop), str(key_path), arguments.width),
            on_start=disturb,
            deadline=300 + 4 * arguments.window * arguments.pairs,
            env={"KERAS_RING_FLIGHT_DIRECTORY": "off"},
        )
        unpickled = os.path.exists(bomb)

    ends = result.values[0][0]
    quiet = [steps_per_second(ends, w) for w in windows.quiet]
    disturbed = [steps_per_second(ends, w) for w in windows.disturbed]
    # Without those in which the whole machine stood still.
    ratios = [
        d / q for q, d in zip(quiet, disturbed, strict=True) if min(q, d) > 0
    ]
    print(f"{'kind':28}connections")
    for kind, count in made.items():
        print(f"{kind:28}{count:11}")
    print(f"connections                 {sum(made.values()):11}")
    print(f"kinds                       {len(made):11}")
    print("accepted                              0")  # or it had raised
    print("crashes                               0")
    print(f"pickles loaded              {int(unpickled):11}")
    for rank, value in enumerate(result.values):
        print(
            f"rank {rank}: {value[1]} rejected, descriptors {value[2]} before,"
            f" {value[3]} after, {len(value[0])} steps"
        )
    print(
        f"steps/s, median of {len(quiet)} windows of {arguments.window} s:"
        f" {statistics.median(quiet):.1f} alone,"
        f" {statistics.median(disturbed):.1f} with unauthenticated peers"
    )
    print(
        f"ratio of means {sum(disturbed) / sum(quiet):.3f}, of medians"
        f" {statistics.median(disturbed) / statistics.median(quiet):.3f}"
    )
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"ratio in {len(ratios)} pairs, quartiles: {low:.3f} {middle:.3f}"
        f" {high:.3f}"
    )
    used = sum(value[4] for value in result.values)
    print(
        f"a rank's own time for one: {used / sum(made.values()) * 1e6:.0f} us"
    )
    print(
        f"these peers' own use of a core: "
        f"{windows.own_cpu / (arguments.window * arguments.pairs):.1%}"
    )


if __name__ == "__main__":
    main()
