"""The nodes of a Slurm allocation."""

import pytest

from keras_ring.launch import allocation
from keras_ring.launch.hosts import Host
from keras_ring.launch.usage import UsageError

TWO = {
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_TASKS_PER_NODE": "4,2",
}


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Puts a program in the place of Slurm's."""

    def put(script):
        path = tmp_path / "scontrol"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    put('[ "$*" = "show hostnames node[1-2]" ] && echo node1 && echo node2')
    return put


def test_nodes_have_their_tasks(scontrol):
    hosts = (Host("node1", 4), Host("node2", 2))
    assert allocation.allocated_hosts(TWO) == hosts
    same = {**TWO, "SLURM_TASKS_PER_NODE": "3(x2)"}
    assert [host.slots for host in allocation.allocated_hosts(same)] == [3, 3]
    # What is not understood is one each.
    for text in ("", "3", "3(x", "2,2,2"):
        odd = {**TWO, "SLURM_TASKS_PER_NODE": text}
        assert [h.slots for h in allocation.allocated_hosts(odd)] == [1, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_JOB_NODELIST": ""},
        {"SLURM_JOB_NUM_NODES": "1"},
        # Each task would start a launcher.
        {"SLURM_STEP_NUM_TASKS": "2"},
        # A rank that starts a job of its own.
        {"KERAS_RING_SIZE": "4"},
    ],
)
def test_where_there_is_none(scontrol, change):
    assert allocation.allocated_hosts({**TWO, **change}) == ()


def test_slurm_that_does_not_answer(scontrol, tmp_path):
    scontrol("echo no such expression >&2; exit 1")
    with pytest.raises(UsageError, match=r"no such expression; give .* by -H"):
        allocation.allocated_hosts(TWO)
    (tmp_path / "scontrol").unlink()
    with pytest.raises(UsageError, match=r"scontrol does not say"):
        allocation.allocated_hosts(TWO)


def test_agents_are_steps():
    command = allocation.step_shell().start_agent("node7")
    assert command[0] == "srun"
    at = command.index("node7")
    assert command[at - 1] == "--nodelist"
    # Words, and no line for a shell.
    assert command[at + 2 : at + 4] == ["-u", "-c"]
