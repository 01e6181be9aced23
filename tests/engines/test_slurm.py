"""Ranks that srun has started, on a Slurm of two nodes."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.engines.conftest import DIGITS, SUMS, places, weights
from tests.lab import slurm as slurm_module

pytestmark = pytest.mark.timeout(150, func_only=True)


@pytest.fixture(scope="module")
def slurm(lab):
    if why := slurm_module.missing():
        pytest.skip(why)
    with slurm_module.slurm(lab, ["h0", "h1"]) as cluster:
        yield cluster


def test_tasks_are_ranks(slurm, jobs):
    slurm.wait_until_idle()
    done = jobs.run(slurm.on_h0("srun", "-N2", "-n3", sys.executable, SUMS))
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == [
        "kr-h0 sum=3.0 local=0/2 cross=0/2",
        "kr-h0 sum=3.0 local=1/2 cross=0/1",
        "kr-h1 sum=3.0 local=0/1 cross=1/2",
    ]


@pytest.mark.long("engines")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("-N2", "--ntasks-per-node=2", "--distribution=cyclic"),
            [
                "kr-h0 sum=6.0 local=0/2 cross=0/2",
                "kr-h0 sum=6.0 local=1/2 cross=0/2",
                "kr-h1 sum=6.0 local=0/2 cross=1/2",
                "kr-h1 sum=6.0 local=1/2 cross=1/2",
            ],
        ),
        # Its protocol for MPI, without an MPI.
        (
            ("-N2", "-n2", "--mpi=pmi2"),
            [
                "kr-h0 sum=1.0 local=0/1 cross=0/2",
                "kr-h1 sum=1.0 local=0/1 cross=1/2",
            ],
        ),
        (
            ("-N1", "-n2"),
            [
                "kr-h0 sum=1.0 local=0/2 cross=0/1",
                "kr-h0 sum=1.0 local=1/2 cross=0/1",
            ],
        ),
    ],
)
def test_steps(slurm, jobs, words, expected):
    slurm.wait_until_idle()
    done = jobs.run(slurm.on_h0("srun", *words, sys.executable, SUMS))
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == expected


@pytest.mark.long("engines")
def test_training(slurm, jobs):
    slurm.wait_until_idle()
    done = jobs.run(
        slurm.on_h0("srun", "-N2", "-n4", sys.executable, DIGITS), limit=140
    )
    assert done.returncode == 0, done.stderr
    assert len(weights(done.stdout)) == 4
    assert len(set(weights(done.stdout))) == 1


@pytest.mark.long("engines")
def test_a_script_without_srun(slurm, jobs):
    """Would be one rank, where the user has asked for four."""
    slurm.wait_until_idle()
    done = jobs.run(slurm.on_h0("salloc", "-N2", "-n4", sys.executable, SUMS))
    assert done.returncode == 1
    assert "write `srun python" in done.stderr
    assert "SLURM_NTASKS=4" in done.stderr


@pytest.mark.long("engines")
def test_a_task_that_is_killed(slurm, jobs, tmp_path):
    slurm.wait_until_idle()
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal\n"
        "import keras_ring as kr\n"
        "kr.init()\n"
        "if kr.rank() == 1:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "kr.allreduce([1.0])\n"
    )
    done = jobs.run(
        slurm.on_h0("srun", "-N2", "-n3", sys.executable, str(script))
    )
    assert done.returncode != 0
    assert "lost rank 1 (host kr-h" in done.stderr


@pytest.mark.long("engines")
def test_keras_ring_run_takes_the_allocation(slurm, jobs):
    """Its agents are started by srun; the hosts' sshd is not asked."""
    slurm.wait_until_idle()
    done = jobs.run(
        slurm.on_h0(
            *("salloc", "-N2", "--ntasks-per-node=2"),
            *(sys.executable, "-m", "keras_ring", "run"),
            *("--", sys.executable, SUMS),
        )
    )
    assert done.returncode == 0, done.stderr
    assert "ranks 0-1 on h0, ranks 2-3 on h1" in done.stderr
    assert places(done.stdout) == [
        "kr-h0 sum=6.0 local=0/2 cross=0/2",
        "kr-h0 sum=6.0 local=1/2 cross=0/2",
        "kr-h1 sum=6.0 local=0/2 cross=1/2",
        "kr-h1 sum=6.0 local=1/2 cross=1/2",
    ]


WAITS = """
import os, pathlib, sys, time
import keras_ring as kr
kr.init()
pathlib.Path(sys.argv[1], f"rank.{kr.rank()}").write_text(str(os.getpid()))
time.sleep(100)
"""


@pytest.mark.long("engines")
@pytest.mark.parametrize("victim", ["launcher", "srun", "agent"])
def test_nothing_is_left_in_an_allocation(slurm, jobs, tmp_path, victim):
    slurm.wait_until_idle()
    (tmp_path / "waits.py").write_text(WAITS)
    process = jobs.start(
        slurm.on_h0(
            *("salloc", "-N2", "--ntasks-per-node=1"),
            *(sys.executable, "-m", "keras_ring", "run", "--"),
            *(sys.executable, str(tmp_path / "waits.py"), str(tmp_path)),
        )
    )
    end = time.monotonic() + 60
    while len(list(tmp_path.glob("rank.*"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    ranks = [int(path.read_text()) for path in tmp_path.glob("rank.*")]
    words = {
        "launcher": "\0-m\0keras_ring\0run",
        "srun": "srun\0--overlap",
        "agent": "-u\0-c\0import sys",
    }[victim]
    victims = [
        pid
        for pid, command in jobs.alive().items()
        if words in command
        and not command.startswith("salloc")
        and (victim == "srun" or not command.startswith("srun"))
    ]
    assert victims, jobs.alive()
    for pid in victims if victim == "srun" else victims[-1:]:
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    while any(Path(f"/proc/{pid}").exists() for pid in ranks):
        assert time.monotonic() - began < 5, "ranks are left"
        time.sleep(0.05)
    _, err = process.communicate(timeout=20)
    if victim != "launcher":
        assert "was lost with its host" in err, err
