"""What happens to a training on two hosts when something goes wrong."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.timeout(120, func_only=True)
# Tells that it trains, and for how many steps it has.
TRAIN = """
import os, pathlib, sys, time
import tensorflow as tf
import keras_ring as kr
folder, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
if len(sys.argv) > 3:
    (folder / f"begun.{os.getpid()}").touch()
    time.sleep(float(sys.argv[3]))
kr.init()
values = tf.zeros(250_000)
steps, end = 0, None
while end is None or not kr.allreduce(
    tf.constant(int(time.monotonic() >= end)), op=kr.Max, name="end"
):
    kr.allreduce(values, name="gradient")
    steps += 1
    if end is None:
        end = time.monotonic() + seconds
        (folder / f"rank.{kr.rank()}").write_text(str(os.getpid()))
print(f"ended after {steps} steps", flush=True)
"""


class Training:
    """A job of 2 + 2 ranks that trains."""

    def __init__(self, process, folder):
        self.process = process
        self.folder = folder

    def wait_until_it_trains(self):
        end = time.monotonic() + 60
        while len(list(self.folder.glob("rank.*"))) < 4:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, "the ranks do not train"
            time.sleep(0.05)

    def wait_for_files(self, pattern, count):
        end = time.monotonic() + 60
        while len(list(self.folder.glob(pattern))) < count:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)

    def pid(self, rank):
        return int((self.folder / f"rank.{rank}").read_text())

    def end(self, limit):
        """Returns what the launcher says, and the seconds until its end."""
        began = time.monotonic()
        out, err = self.process.communicate(timeout=limit)
        return out, err, time.monotonic() - began


@pytest.fixture
def training(lab, jobs, tmp_path):
    def start(seconds, *more, **environment):
        script = tmp_path / "train.py"
        script.write_text(TRAIN)
        process = jobs.start(
            lab.run(
                "kr-h0:2,kr-h1:2",
                *("--", sys.executable, str(script), str(tmp_path)),
                *(str(seconds), *more),
            ),
            **environment,
        )
        return Training(process, tmp_path)

    return start


def test_all_ranks_of_a_host_are_killed(training, jobs):
    job = training(60)
    job.wait_until_it_trains()
    for rank in (2, 3):
        os.kill(job.pid(rank), signal.SIGKILL)
    _, err, seconds = job.end(20)
    assert job.process.returncode == 128 + signal.SIGKILL
    assert re.search(r"rank [23] \(host kr-h1, pid \d+\) was killed", err), err
    assert seconds < 4
    assert not jobs.wait_until_gone(1)


def test_cable_is_cut_in_training(lab, training, jobs):
    job = training(60)
    job.wait_until_it_trains()
    lab("cut", "h1")
    try:
        _, err, seconds = job.end(20)
        assert job.process.returncode != 0
        assert "was lost with its host: nothing was heard from it" in err, err
        assert "kr-h1" in err
        assert seconds < 6
        # Those of the other side of the cut end by themselves.
        assert not jobs.wait_until_gone(6)
    finally:
        lab("heal", "h1")


@pytest.mark.long("hosts")
def test_cable_is_cut_before_the_ranks_meet(lab, training, jobs):
    job = training(60, "3")
    job.wait_for_files("begun.*", 4)
    lab("cut", "h1")
    try:
        _, err, seconds = job.end(20)
        assert job.process.returncode != 0
        assert "was lost with its host: nothing was heard from it" in err, err
        assert seconds < 6
        assert not jobs.wait_until_gone(6)
    finally:
        lab("heal", "h1")


@pytest.mark.long("hosts")
def test_cable_is_cut_for_a_moment(lab, training):
    job = training(6)
    job.wait_until_it_trains()
    lab("cut", "h1")
    time.sleep(1.5)
    lab("heal", "h1")
    out, err, _ = job.end(60)
    assert job.process.returncode == 0, err
    assert len(re.findall(r"ended after \d+ steps", out)) == 4


@pytest.mark.long("hosts")
def test_slow_host_is_not_lost(lab, training):
    job = training(6)
    job.wait_until_it_trains()
    lab("slow", "h1", "--rate", "20mbit")
    try:
        out, err, _ = job.end(90)
        assert job.process.returncode == 0, err
        assert len(re.findall(r"ended after \d+ steps", out)) == 4
    finally:
        lab("heal", "h1")


# --- Ranks without a launcher of ours ---


@pytest.fixture
def ranks(lab, jobs, tmp_path):
    """Starts rank 0 on h0 and rank 1 on h1, as an engine would."""

    def start(*, keys=("ab" * 32, "ab" * 32), where="kr-h0", **environment):
        script = tmp_path / "train.py"
        script.write_text(TRAIN)
        return [
            jobs.start(
                lab.on(
                    f"h{rank}",
                    *(sys.executable, str(script), str(tmp_path), "2"),
                ),
                KERAS_RING_SIZE="2",
                KERAS_RING_RANK=str(rank),
                KERAS_RING_RENDEZVOUS=f"{where}:29433",
                KERAS_RING_JOB_KEY=keys[rank],
                **environment,
            )
            for rank in range(2)
        ]

    return start


def test_a_name_that_comes_late(lab, ranks):
    started = ranks(where="late-name")
    time.sleep(5)
    for host in ("h0", "h1"):
        entry = "echo 10.77.0.1 late-name >> /etc/hosts"
        subprocess.run(lab.on(host, "sh", "-c", entry), check=True)
    for process in started:
        out, err = process.communicate(timeout=40)
        assert process.returncode == 0, err
        assert "ended after" in out


def test_a_rank_with_another_key(ranks):
    first, second = ranks(
        keys=("ab" * 32, "cd" * 32), KERAS_RING_START_TIMEOUT="8"
    )
    _, err = second.communicate(timeout=30)
    assert "does not hold this job's key" in err
    _, err = first.communicate(timeout=30)
    assert "rank 1 of 2 did not join in time" in err
    assert re.search(
        r"refused, the last from \S*10\.77\.0\.2\S*: .*as a rank with another",
        err,
    ), err


@pytest.mark.long("hosts")
def test_cable_is_cut_without_a_launcher(lab, ranks, tmp_path):
    started = ranks(KERAS_RING_HEARTBEAT_TIMEOUT="2")
    end = time.monotonic() + 40
    while len(list(tmp_path.glob("rank.*"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    lab("cut", "h1")
    began = time.monotonic()
    try:
        for rank, process in enumerate(started):
            _, err = process.communicate(timeout=30)
            assert process.returncode != 0
            other = f"lost rank {1 - rank} (host kr-h{1 - rank}"
            assert other in err, err
            assert "nothing was heard from it for 2 s" in err
        assert time.monotonic() - began < 5
    finally:
        lab("heal", "h1")
