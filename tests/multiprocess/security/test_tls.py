"""TLS between ranks that are on different hosts, or say that they are."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import keras_ring
from tests.harness import codes, run_ranks
from tests.multiprocess.failures import rank_jobs
from tests.multiprocess.security import rank_tls


def test_what_is_sent_can_be_read_without_it_and_not_with_it():
    result = run_ranks(rank_tls.jobs, 3, hosts=[0, 1, 2], deadline=120)
    found = [rank.value for rank in result.ranks]
    for of_rank in found:
        assert "KERAS_RING_TLS" in of_rank["differ"]
        assert "rank 1" in of_rank["differ"]
        assert "ranks 0, 2" in of_rank["differ"]
        for tls in "01":
            np.testing.assert_array_equal(of_rank[tls][0], found[0]["0"][0])
    (plain_bytes, plain), (tls_bytes, tls) = (found[0][t][1] for t in "01")
    assert plain == [True] * len(plain)
    assert tls == [False] * len(tls)
    # It did pass through there. How many bytes the rest takes depends on the
    # algorithms, and those on what each job measured at its start.
    assert min(plain_bytes, tls_bytes) > 3_000_001 * 4


def test_a_killed_rank_is_named():
    def kill(running):
        for rank in range(3):
            running.wait_for(rank, "training", timeout=60)
        running.send(1, signal.SIGKILL)

    result = run_ranks(
        rank_jobs.train_until_killed,
        3,
        args=("function",),
        expect={
            0: codes.TEST_FAILURE,
            1: -signal.SIGKILL,
            2: codes.TEST_FAILURE,
        },
        on_start=kill,
        hosts=[0, 1, 2],
        env={"KERAS_RING_TLS": "1"},
        deadline=120,
    )
    for rank in (0, 2):
        assert "lost rank 1 (host" in result.ranks[rank].stderr


def test_without_the_library_the_error_says_what_to_install(tmp_path):
    """As it is where there was no OpenSSL to build with."""
    package = Path(keras_ring.__file__).parent
    for library in package.glob("*.so"):
        if library.name.startswith(("libkeras_ring.so", "_core.")):
            (tmp_path / library.name).write_bytes(library.read_bytes())
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import _core\n"
            "try:\n"
            "    _core.init([])\n"
            "except Exception as error:\n"
            "    print(error)\n",
        ],
        env={
            "PYTHONPATH": str(tmp_path),
            "KERAS_RING_TLS": "1",
            "KERAS_RING_RANK": "1",
            "KERAS_RING_SIZE": "2",
            "KERAS_RING_JOB_KEY": "ab" * 32,
            "KERAS_RING_RENDEZVOUS": "127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "libssl-dev" in done.stdout, done.stdout + done.stderr
    assert "KERAS_RING_TLS is 1" in done.stdout
