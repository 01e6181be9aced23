"""Flight records of real ranks: on SIGUSR1 and when a job breaks."""

import signal
import stat
import subprocess
import sys
import time

import pytest

from keras_ring.launch.cli import doctor
from keras_ring.launch.cli.flight_log import read_flight_logs
from tests.harness import run_ranks
from tests.multiprocess.failures import rank_flight

pytestmark = pytest.mark.timeout(180)


def wait_for_files(directory, names, seconds=30.0):
    end = time.monotonic() + seconds
    while not all(any(directory.glob(name)) for name in names):
        assert time.monotonic() < end, sorted(directory.glob("*"))
        time.sleep(0.02)


def ask(running, ranks):
    for rank in range(ranks):
        running.wait_for(rank, "ready", timeout=60)
    # So that what is waited for is under way.
    time.sleep(1.0)
    for rank in range(ranks):
        running.send(rank, signal.SIGUSR1)


def test_a_signal_makes_all_ranks_tell(tmp_path):
    flights, release = tmp_path / "flights", tmp_path / "release"
    seen = []

    def watch(running):
        ask(running, 3)
        pids = running.pids
        names = [f"flight.{rank}.{pids[rank]}.json" for rank in range(3)]
        names += [f"flight.{rank}.{pids[rank]}.set.1.json" for rank in (0, 1)]
        wait_for_files(flights, names)
        seen.extend(read_flight_logs(flights))
        release.touch()

    run_ranks(
        rank_flight.some_are_busy,
        3,
        args=(str(release),),
        env={"KERAS_RING_FLIGHT_DIRECTORY": str(flights)},
        on_start=watch,
        deadline=90,
    )
    lines = doctor.report(seen)
    assert "Rank 2 went another way than the rest." in lines[0]
    assert "Ranks 0 and 1 asked for allreduce 'grad' " in lines[0]
    assert (
        "Rank 2 has asked for nothing since allreduce 'step' was" in (lines[0])
    )
    assert lines[0].endswith("was allreduce 'step' (decision 3).")
    assert "Process set 1:" in lines
    of_set = lines[lines.index("Process set 1:") + 1]
    assert "Nothing was under way on any of them." in of_set
    assert "allreduce 'half'" in of_set
    (path,) = set(flights.glob("flight.0.*")) - set(flights.glob("*.set.*"))
    mode = path.stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_handler_of_the_program_is_kept(tmp_path):
    flights, done = tmp_path / "flights", tmp_path / "done"

    def watch(running):
        ask(running, 2)
        done.touch()

    result = run_ranks(
        rank_flight.own_handler,
        2,
        args=(str(done),),
        env={"KERAS_RING_FLIGHT_DIRECTORY": str(flights)},
        on_start=watch,
        deadline=60,
    )
    assert result.values == [1, 1]
    assert not flights.exists()


def test_survivors_of_a_loss_tell(tmp_path):
    flights = tmp_path / "flights"

    def kill(running):
        for rank in range(3):
            running.wait_for(rank, "ready", timeout=60)
        time.sleep(0.5)
        running.send(1, signal.SIGKILL)

    run_ranks(
        rank_flight.wait_to_be_killed,
        3,
        env={"KERAS_RING_FLIGHT_DIRECTORY": str(flights)},
        expect={0: 10, 1: -signal.SIGKILL, 2: 10},
        on_start=kill,
        deadline=60,
    )
    text = doctor.diagnose(read_flight_logs(flights))
    assert text.startswith("Ranks 0 and 2 wrote what they remembered: ")
    assert "lost rank 1 (host " in text
    assert "Rank 1 left no record" in text
    assert "All others wait for allreduce 'grad'" in text


def test_an_error_of_single_tensors_leaves_no_files(tmp_path):
    flights = tmp_path / "flights"
    result = run_ranks(
        rank_flight.different_names,
        2,
        env={
            "KERAS_RING_FLIGHT_DIRECTORY": str(flights),
            "KERAS_RING_STALL_CHECK_TIME": "1",
        },
        deadline=60,
    )
    assert all("every rank waits" in message for message in result.values)
    assert not flights.exists()


SCRIPT = """
import os, signal, time
import tensorflow as tf
import keras_ring as kr
kr.init()
kr.allreduce(tf.ones([4]), name="step")
if kr.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
kr.allreduce(tf.ones([4]), name="grad")
"""


@pytest.mark.parametrize("output", [True, False])
def test_the_launcher_says_what_the_records_tell(tmp_path, output):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = ["--output-dir", str(tmp_path / "out")] if output else []
    run = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2"),
            *options,
            "--",
            sys.executable,
            str(script),
        ],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert run.returncode == 128 + signal.SIGKILL
    assert "Rank 1 left no record" in run.stderr
    said = "the ranks' flight records are in "
    directory = run.stderr.split(said)[1].splitlines()[0]
    if output:
        assert directory == str(tmp_path / "out" / "flight")
    told = subprocess.run(
        [sys.executable, "-m", "keras_ring", "doctor", directory],
        capture_output=True,
        text=True,
        timeout=60,
    )
    subprocess.run(["rm", "-r", directory], check=True)
    assert told.returncode == 0
    assert "lost rank 1 (host " in told.stdout
    assert told.stdout.splitlines()[0] in run.stderr


def test_a_directory_without_records_is_one_line(tmp_path):
    told = subprocess.run(
        [sys.executable, "-m", "keras_ring", "doctor", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 2
    assert told.stderr == (
        f"keras-ring: error: {tmp_path}: no flight logs (flight.RANK.PID.json)"
        " there\n"
    )
