"""What real ranks show while they train, stand still, and die."""

import json
import os
import signal
import sys
import time

import pytest

from keras_ring.observe.directory import VARIABLE
from keras_ring.observe.jobs import find_jobs, pick
from keras_ring.observe.view import view
from keras_ring.observe.waiting import cause_of, explain
from tests.launcher.command import LIMIT, Command

pytestmark = pytest.mark.timeout(120)

# Rank 1 gets its data late, until it is told to say what it has counted.
RANK = """
import json, os, sys, time
from pathlib import Path
import numpy as np
import keras_ring as kr
from keras_ring.core import telemetry
kr.init()
here = Path(sys.argv[1])
value = np.ones(1000, "float32")
step = 0
while not (here / f"tell{step}").exists():
    with telemetry.activity("data"):
        time.sleep(0.02 * kr.rank())
    telemetry.count("samples", 32)
    telemetry.count("fit_steps")
    kr.allreduce(value, name="value")
    # All ranks leave the loop after the same step.
    step += 1
    if kr.rank() == 0 and (here / "tell").exists():
        (here / f"tell{step + 1}").touch()
kr.barrier()
told = here / f"told{kr.rank()}"
while not (here / f"end{kr.rank()}").exists():
    told.with_suffix(".part").write_text(json.dumps(kr.metrics()))
    os.rename(told.with_suffix(".part"), told)
    time.sleep(0.02)
kr.allreduce(value, name="last")
"""


@pytest.fixture
def job(tmp_path):
    """Two ranks, and a function that looks at them until something is so."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    status = tmp_path / "status"
    command = Command(
        *("run", "-np", "2", "--", sys.executable, str(script), str(tmp_path)),
        **{VARIABLE: str(status)},
    )
    yield Watched(status, command)
    command.process.kill()
    assert command.wait_until_gone(5.0) == set()


class Watched:
    """A job that is looked at."""

    def __init__(self, status, command):
        self.status = status
        self.command = command

    def pages(self):
        found = find_jobs(self.status)
        return pick(found, found[0].id).read().pages if found else ()

    def until(self, is_so, seconds=0.3):
        """Returns the first view of which something is so."""
        end = time.monotonic() + LIMIT
        while True:
            before = self.pages()
            time.sleep(seconds)
            seen = view(before, self.pages())
            if seen is not None and is_so(seen):
                return seen
            assert self.command.process.poll() is None or not self.pages(), seen
            assert time.monotonic() < end, seen


def trains(seen):
    return len(seen.running) == 2 and (seen.steps_per_second or 0) > 5


def agrees(page, folder):
    """Returns whether a page has what `kr.metrics()` says."""
    try:
        told = json.loads((folder / f"told{page.rank}").read_text())
    except FileNotFoundError:
        return False
    # TensorFlow's arena is counted elsewhere.
    return dict(page.counters) == {
        name: value for name, value in told.items() if "arena" not in name
    }


def test_ranks_that_train_and_say_what_they_have_counted(job, tmp_path):
    seen = job.until(trains, seconds=1.0)
    slowest, cause = cause_of(seen)
    assert (slowest.rank, cause) == (1, "data"), seen
    assert seen.command.endswith(f"rank.py {tmp_path}")
    per_step = seen.samples_per_second / seen.steps_per_second
    assert per_step == pytest.approx(64, rel=0.2)
    assert seen.memory > 100 << 20
    assert pick(find_jobs(job.status), str(job.command.process.pid)).runs
    (tmp_path / "tell").touch()
    job.until(lambda seen: all(map(agrees, job.pages(), [tmp_path] * 2)))
    (tmp_path / "end0").touch()
    seen = job.until(lambda seen: bool(explain(seen)))
    assert explain(seen)[0].startswith(
        "Rank 0 waits for rank 1, which computes"
    )
    (tmp_path / "end1").touch()
    assert job.command.wait().returncode == 0
    assert list(job.status.iterdir()) == []


def test_a_rank_that_stands_still_and_then_dies(job):
    seen = job.until(trains)
    pid = seen.ranks[1].pid
    os.kill(pid, signal.SIGSTOP)
    seen = job.until(lambda seen: bool(explain(seen)))
    assert explain(seen)[0].startswith(
        "Rank 0 waits for rank 1, which has been stopped by a signal"
    )
    os.kill(pid, signal.SIGKILL)
    assert job.command.wait().returncode == 128 + signal.SIGKILL
    left = view((), job.pages())
    assert [rank.state for rank in left.ranks] == ["failed", "killed"]
    assert "rank 1" in left.ranks[0].error
