"""Kills rank 0 at random moments while it saves, and has the job go on.

Each run first restores what the one before has left, and compares it with what
the weights were at that step. `python -m tests.keras.kills` takes minutes.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.harness import ANY, run_ranks
from tests.keras import rank_kills


def left_over(directory):
    """Returns whether a save was under way."""
    return any(
        path.name.startswith((".writing-", ".deleting-"))
        for path in directory.rglob("*")
    )


def run_and_kill(directory, num_ranks, delay):
    """Runs the training until it is killed, `delay` seconds after a save."""

    def kill(running):
        running.wait_for(0, "saved", timeout=280)
        time.sleep(delay)
        running.send(0, signal.SIGKILL)

    run_ranks(
        rank_kills.train,
        num_ranks,
        args=(str(directory),),
        deadline=300,
        expect={0: -signal.SIGKILL, **{r: ANY for r in range(1, num_ranks)}},
        on_start=kill,
    )


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.keras.kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print("seed", arguments.seed)
    middle = 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        # The last run restores what the last kill has left.
        for number in range(arguments.kills + 1):
            run_and_kill(directory, arguments.ranks, rng.uniform(0.0, 0.3))
            if number < arguments.kills:
                middle += left_over(directory)
            log = rank_kills.Log(directory / "log.txt")
            print(
                f"{number} kills restored, {middle} of a save under way; at "
                f"step {log.saved}",
                flush=True,
            )
    print(f"{arguments.kills} of {arguments.kills} restorable")
    return 0


if __name__ == "__main__":
    sys.exit(main())
