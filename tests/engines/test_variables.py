"""Processes that have a variable for each number."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from keras_ring.core.engines.rank_settings import rank_settings

pytestmark = pytest.mark.timeout(90)
ROOT = Path(__file__).parents[2]
SUMS = str(ROOT / "tests" / "hosts" / "rank_sums.py")


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def _torchrun(rank, size, port):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _keras(rank, size, port):
    return {
        "KERAS_DISTRIBUTION_PROCESS_ID": str(rank),
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(size),
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}",
    }


def test_key_of_the_page(tmp_path):
    page = (ROOT / "docs" / "launching.md").read_text()
    (block,) = re.findall(r"^```sh\n(\(umask.*?)^```$", page, re.M | re.S)
    found = subprocess.run(
        ["bash", "-ec", block + "echo $KERAS_RING_JOB_KEY_FILE"],
        env={**os.environ, "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    environment = {
        "KERAS_RING_SIZE": "2",
        "KERAS_RING_JOB_KEY_FILE": found.stdout.strip(),
    }
    with rank_settings(environment) as settings:
        assert len(bytes.fromhex(settings["KERAS_RING_JOB_KEY"])) == 32


def _start(variables, **more):
    return subprocess.Popen(
        [sys.executable, SUMS],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("engine", [_torchrun, _keras])
def test_processes_become_ranks(tmp_path, engine):
    key = tmp_path / "key"
    key.write_text("cd" * 32)
    key.chmod(0o600)
    port = _free_port()
    processes = [
        _start(engine(rank, 2, port), KERAS_RING_JOB_KEY_FILE=str(key))
        for rank in range(2)
    ]
    try:
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert f"sum=1.0 local={rank}/2 cross=0/1" in out
    finally:
        for process in processes:
            process.kill()


def test_processes_without_a_key_do_not_train_alone():
    process = _start(_torchrun(0, 2, 29500))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "StartError: This process is rank 0 of 2 that torchrun" in err
    assert "KERAS_RING_JOB_KEY_FILE" in err
