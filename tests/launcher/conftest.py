"""Jobs of ranks that show pages as the core does, without it."""

import sys
from pathlib import Path

import pytest

from tests.launcher.command import Command

ROOT = str(Path(__file__).resolve().parents[2])
# Its directory of pages is that of its agent, if it has one.
RANK = f"""
import os, sys, time
sys.path.insert(0, {ROOT!r})
from keras_ring.protocol import contract
from keras_ring.protocol.job_id import job_id
from keras_ring.observe.directory import status_directory
from tests.unit.status_pages import PageFile
rank, size = (int(os.environ[x]) for x in (contract.RANK, contract.SIZE))
page = PageFile(
    status_directory(os.environ),
    rank,
    size,
    job_id(os.environ[contract.JOB_KEY]),
    host=os.environ.get("TEST_HOST", "here"),
)
page.set(samples=100 * (rank + 1))
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
page.path.unlink()
try:
    page.path.parent.rmdir()
except OSError:
    pass
"""


@pytest.fixture
def shell_here(tmp_path):
    """Makes a shell for `--rsh` that takes any name for this host."""

    def make(redirection=""):
        path = tmp_path / "rsh"
        path.write_text(f'#!/bin/sh\nshift\nexec sh -c "$*" {redirection}\n')
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def running(tmp_path):
    """Starts a job whose ranks show pages until `tmp_path/end` is there."""
    commands = []
    script = tmp_path / "rank.py"
    script.write_text(RANK)

    def start(*options, **environment):
        command = Command(
            *("run", *options, "--"),
            *(sys.executable, str(script), str(tmp_path / "end")),
            **environment,
        )
        commands.append(command)
        return command

    yield start
    (tmp_path / "end").touch()
    for command in commands:
        assert command.wait_until_gone(5.0) == set()
