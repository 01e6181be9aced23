"""Which rank of which job a process is, where another has started it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.core.engines import slurm
from keras_ring.core.engines.invitations import (
    Invitation,
    invite,
    own_addresses,
)
from keras_ring.core.engines.known import ENGINES, identity_among_several
from keras_ring.core.engines.rank_settings import rank_settings
from keras_ring.errors import ConfigurationError, StartError

TF_CONFIG = json.dumps(
    {
        "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]},
        "task": {"type": "worker", "index": 1},
    }
)
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
}
TRAIN_JOB = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "auto",
    "PET_MASTER_ADDR": "train-node-0-0.train",
    "PET_MASTER_PORT": "29400",
}
# Engine -> the variables of one of its processes, size, rank.
STARTED = {
    "horovodrun": ({"HOROVOD_SIZE": "4", "HOROVOD_RANK": "0"}, 4, 0),
    "mpirun (Open MPI)": (
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"},
        4,
        2,
    ),
    "mpirun (MVAPICH)": (
        {"MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_RANK": "1"},
        2,
        1,
    ),
    "jsrun": ({"JSM_NAMESPACE_SIZE": "6", "JSM_NAMESPACE_RANK": "5"}, 6, 5),
    "flux run": ({"FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "1"}, 2, 1),
    "mpiexec (MPICH, Intel MPI)": ({"PMI_SIZE": "3", "PMI_RANK": "0"}, 3, 0),
    "srun (Slurm)": (SLURM, 4, 3),
    "torchrun, or a like of it": ({"WORLD_SIZE": "4", "RANK": "1"}, 4, 1),
    "a launcher of Keras": ({"KERAS_DISTRIBUTION_NUM_PROCESSES": "4"}, 4, None),
    "Kubernetes (Kubeflow TrainJob)": (TRAIN_JOB, 2, 1),
    "Kubernetes (LeaderWorkerSet)": (
        {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0"},
        2,
        0,
    ),
    "the one that has set TF_CONFIG": ({"TF_CONFIG": TF_CONFIG}, 3, 2),
    "Kubernetes (Indexed Job)": ({"JOB_COMPLETION_INDEX": "5"}, None, 5),
}
# Those that bring their processes together by themselves.
MEETING = {
    "mpirun (Open MPI)",
    "mpirun (MVAPICH)",
    "jsrun",
    "flux run",
    "mpiexec (MPICH, Intel MPI)",
    "srun (Slurm)",
}
KEY = "ab" * 32
FILE = "KERAS_RING_JOB_KEY_FILE"


def settings_of(environment, communicator=None):
    with rank_settings(environment, communicator) as settings:
        return settings


def test_the_table_above_is_whole():
    assert [engine.name for engine in ENGINES] == list(STARTED)


@pytest.mark.parametrize("name", STARTED)
def test_places(name):
    variables, size, rank = STARTED[name]
    engine, identity = identity_among_several({"HOME": "/", **variables})
    assert engine.name == identity.engine == name
    assert (identity.size, identity.rank) == (size, rank)
    for variable, value in identity.variables.items():
        assert variables[variable] == value


@pytest.mark.parametrize(
    "name", [name for name in STARTED if name not in MEETING]
)
def test_several_processes_do_not_train_alone(name):
    variables, size, _ = STARTED[name]
    environment = {"HOME": "/", **variables}
    with pytest.raises(StartError) as refused:
        settings_of(environment)
    text = str(refused.value)
    for variable, value in identity_among_several(environment)[
        1
    ].variables.items():
        assert f"{variable}={value}" in text
    assert f"of {size or 'several'} that {name} has started" in text
    assert "KERAS_RING_SIZE=1" in text
    # Ranks of ours, and who says that this is one process.
    assert settings_of({**environment, "KERAS_RING_SIZE": "1"}) == {}
    with pytest.raises(StartError):
        settings_of({**environment, "KERAS_RING_SIZE": ""})


TORCHRUN = {
    "WORLD_SIZE": "4",
    "RANK": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
KERAS = {
    "KERAS_DISTRIBUTION_NUM_PROCESSES": "4",
    "KERAS_DISTRIBUTION_PROCESS_ID": "1",
    "KERAS_DISTRIBUTION_JOB_ADDRESSES": "node1:29500, node2:29500",
}
LEADER = {
    "LWS_GROUP_SIZE": "4",
    "LWS_WORKER_INDEX": "1",
    "LWS_LEADER_ADDRESS": "leader.group",
}


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        (TORCHRUN, "node1:29500"),
        (
            {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"},
            "node1:29501",
        ),
        ({**TORCHRUN, "MASTER_ADDR": "fd00::1"}, "[fd00::1]:29500"),
        ({**TORCHRUN, "KERAS_RING_RENDEZVOUS": "h:7"}, "h:7"),
        (KERAS, "node1:29500"),
        (LEADER, "leader.group:29400"),
        ({**TRAIN_JOB, "PET_NNODES": "4"}, "train-node-0-0.train:29400"),
        (
            {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": ["a:1", "b:2", "c:3", "d:4"]},
                        "task": {"type": "worker", "index": 1},
                    }
                )
            },
            "a:1",
        ),
        # What the user says counts before what an engine can do.
        (
            {
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_RANK": "1",
                "KERAS_RING_RENDEZVOUS": "h:7",
            },
            "h:7",
        ),
        (
            {**SLURM, "SLURM_PROCID": "1", "KERAS_RING_RENDEZVOUS": "h:7"},
            "h:7",
        ),
    ],
)
def test_engine_that_tells_all_makes_ranks(variables, address):
    assert settings_of({**variables, "KERAS_RING_JOB_KEY": KEY}) == {
        "KERAS_RING_SIZE": "4",
        "KERAS_RING_RANK": "1",
        "KERAS_RING_RENDEZVOUS": address,
        "KERAS_RING_JOB_KEY": KEY,
    }
    with pytest.raises(StartError, match=FILE):
        settings_of(variables)


@pytest.mark.parametrize("lost", ["MASTER_ADDR", "MASTER_PORT", "RANK"])
def test_engine_that_does_not_tell_all_is_refused(lost):
    environment = {**TORCHRUN, "KERAS_RING_JOB_KEY": KEY}
    del environment[lost]
    with pytest.raises(StartError, match="would train alone"):
        settings_of(environment)


def test_key_from_a_file(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    for variables in (TORCHRUN, {"KERAS_RING_SIZE": "2"}):
        settings = settings_of({**variables, FILE: str(path)})
        assert settings["KERAS_RING_JOB_KEY"] == KEY
    path.chmod(0o640)
    with pytest.raises(StartError, match=r"others can read .*chmod 600"):
        settings_of({**TORCHRUN, FILE: str(path)})
    path.unlink()
    with pytest.raises(StartError, match="No such file"):
        settings_of({**TORCHRUN, FILE: str(path)})


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {"WORLD_SIZE": "big"},
        {"RANK": "3"},
        {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_NTASKS": "1"},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{}"},
        {"TF_CONFIG": "[1]"},
        {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'},
        {"TF_CONFIG": '{"cluster": {"worker": 3}}'},
    ],
)
def test_one_process_is_no_matter(environment):
    assert settings_of(environment) == {}


def test_the_engine_that_is_nearest_counts():
    def engine(environment):
        return identity_among_several(environment)[1].engine

    both = {**SLURM, **STARTED["mpirun (Open MPI)"][0]}
    assert engine(both) == "mpirun (Open MPI)"
    assert engine({**both, "OMPI_COMM_WORLD_SIZE": "1"}) == "srun (Slurm)"
    # srun speaks MPICH's protocol.
    pmi = {**SLURM, "PMI_SIZE": "4", "PMI_RANK": "3"}
    assert engine(pmi) == "srun (Slurm)"
    assert engine({**pmi, "MPI_LOCALRANKID": "1"}).startswith("mpiexec")


@pytest.mark.parametrize(
    "nearer",
    [
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {"WORLD_SIZE": "1", "RANK": "0"},
    ],
)
def test_the_only_process_of_an_engine_in_something_larger(nearer):
    for around in ({"SLURM_NTASKS": "4"}, {"JOB_COMPLETION_INDEX": "2"}):
        assert settings_of({**nearer, **around}) == {}
    assert identity_among_several({**nearer, **SLURM})[1].rank == 3


def test_a_script_of_sbatch_is_no_task():
    script = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
    with pytest.raises(StartError, match="write `srun python"):
        settings_of(script)
    assert settings_of({**script, "KERAS_RING_SIZE": "1"}) == {}


def test_an_engine_may_give_the_rank_alone():
    given_size = {"KERAS_RING_SIZE": "6", "KERAS_RING_JOB_KEY": KEY}
    pod = {"JOB_COMPLETION_INDEX": "5"}
    assert settings_of({**pod, **given_size}) == {"KERAS_RING_RANK": "5"}
    # The ranks of another job.
    assert settings_of({**TORCHRUN, **given_size}) == {}
    assert settings_of({**pod, **given_size, "KERAS_RING_RANK": "0"}) == {}


def test_several_processes_of_a_node_of_a_train_job():
    with pytest.raises(StartError, match="numProcPerNode to 1"):
        settings_of({**TRAIN_JOB, "PET_NPROC_PER_NODE": "4"})


# --- Interfaces ---


def test_the_interface_may_be_a_network():
    ours = {
        "KERAS_RING_SIZE": "2",
        "KERAS_RING_RANK": "0",
        "KERAS_RING_RENDEZVOUS": "node1:4000",
    }
    # What only another place than this host knows stays as it is.
    for address in ("203.0.113.9", "fd00::9", "localhost"):
        settings = settings_of({**ours, "KERAS_RING_INTERFACE": address})
        assert settings == {"KERAS_RING_INTERFACE": address}
    for wanted in ("no-such-interface.invalid", "203.0.113.0/24"):
        with pytest.raises(ConfigurationError, match="has none such"):
            settings_of({**ours, "KERAS_RING_INTERFACE": wanted})


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"KERAS_RING_SIZE": "1"},
        {"KERAS_RING_SIZE": "2", "KERAS_RING_RENDEZVOUS": "127.0.0.1:4000"},
    ],
)
def test_an_interface_that_nobody_uses_may_be_missing(environment):
    given = {**environment, "KERAS_RING_INTERFACE": "no-such.invalid"}
    assert settings_of(given) == {}


def test_rank_zero_may_be_at_an_address_that_only_others_know():
    assert own_addresses("203.0.113.9") == ("203.0.113.9",)
    with pytest.raises(ConfigurationError, match="has none such"):
        own_addresses("no-such-interface.invalid")


# --- Meetings ---


@given(
    addresses=st.lists(
        st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)),
        min_size=1,
        max_size=4,
    ),
    port=st.integers(1, 65535),
)
def test_invitations_come_as_they_went(addresses, port):
    invitation = Invitation(addresses=tuple(addresses), port=port, key=KEY)
    assert Invitation.decode(invitation.encode()) == invitation
    assert KEY not in repr(invitation)
    hosts, _, last = invitation.rendezvous.rpartition(":")
    assert int(last) == port
    # Brackets keep the colons of IPv6 apart from that of the port.
    expected = [f"[{each}]" if ":" in each else each for each in addresses]
    assert hosts.split(",") == expected


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"addresses": 3}'])
def test_what_is_no_invitation(text):
    with pytest.raises(ValueError):
        Invitation.decode(text)


def test_one_host_meets_on_loopback():
    with invite({}, one_host=True) as (invitation, listener):
        assert invitation.addresses == ("127.0.0.1",)
        socket.create_connection(("127.0.0.1", invitation.port)).close()
        assert len(bytes.fromhex(invitation.key)) == 32
    assert listener.fileno() == -1
    with invite({"KERAS_RING_JOB_KEY": KEY}, one_host=True) as (again, _):
        assert again.key == KEY


def test_ports_of_a_range():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match="cannot listen"):
            with invite(
                {"KERAS_RING_PORT_RANGE": f"{port}-{port}"}, one_host=True
            ):
                pass
    for wrong in ("1", "9-8", "0-7", "a-b", "65536-65537"):
        with pytest.raises(ConfigurationError, match="KERAS_RING_PORT_RANGE"):
            with invite({"KERAS_RING_PORT_RANGE": wrong}, one_host=True):
                pass


# --- Slurm ---


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """The environments of the tasks of one step."""
    monkeypatch.setattr(slurm, "_path", lambda _: tmp_path / "jobs" / "step")
    return [
        {
            **SLURM,
            "SLURM_PROCID": str(rank),
            "HOME": str(tmp_path),
            "KERAS_RING_START_TIMEOUT": "10",
        }
        for rank in range(4)
    ]


def test_tasks_meet_by_a_file(tasks, tmp_path):
    found = {}

    def task(rank):
        found[rank] = settings_of(tasks[rank])

    others = [threading.Thread(target=task, args=(r,)) for r in (1, 2, 3)]
    for thread in others:
        thread.start()
    with rank_settings(tasks[0]) as first:
        (file,) = (tmp_path / "jobs").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700
        for thread in others:
            thread.join(20)
    assert not list((tmp_path / "jobs").iterdir())
    assert first.pop("KERAS_RING_RENDEZVOUS_FD")
    for rank, settings in {0: first, **found}.items():
        assert settings == {**first, "KERAS_RING_RANK": str(rank)}
    assert first["KERAS_RING_RENDEZVOUS"].startswith("127.0.0.1:")


def test_a_file_left_by_a_task_that_was_killed(tasks, tmp_path):
    (tmp_path / "jobs").mkdir(mode=0o700)
    (tmp_path / "jobs" / "step.part").write_text("half")
    (tmp_path / "jobs" / "step").write_text("old")
    (tmp_path / "jobs" / "step").chmod(0o600)
    with rank_settings(tasks[0]):
        Invitation.decode((tmp_path / "jobs" / "step").read_text())


def test_a_file_that_others_can_write(tasks, tmp_path):
    with contextlib.ExitStack() as stack:
        stack.enter_context(rank_settings(tasks[0]))
        (tmp_path / "jobs" / "step").chmod(0o660)
        with pytest.raises(StartError, match="mode 660; it must be this user"):
            settings_of(tasks[1])
    os.chmod(tmp_path / "jobs", 0o777)
    with pytest.raises(StartError, match="mode 777; it must be this user"):
        settings_of(tasks[0])


def test_a_rank_zero_that_does_not_come(tasks):
    with pytest.raises(StartError, match=r"Rank 0 .* within 0\.2 s"):
        settings_of({**tasks[1], "KERAS_RING_START_TIMEOUT": "0.2"})


def test_each_step_has_a_file_of_its_own():
    home = {"HOME": "/home/me"}
    paths = {
        str(slurm._path({**home, **SLURM, **change}))
        for change in (
            {},
            {"SLURM_JOB_ID": "8"},
            {"SLURM_STEP_ID": "1"},
            {"SLURM_RESTART_COUNT": "1"},
        )
    }
    assert len(paths) == 4
    assert all(path.startswith("/home/me/.keras_ring/") for path in paths)


# --- MPI ---


def test_mpi4py_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(StartError) as refused:
        settings_of(STARTED["mpirun (Open MPI)"][0])
    assert "rank 2 of 4 that mpirun (Open MPI)" in str(refused.value)
    assert "pip install mpi4py" in str(refused.value)


class World:
    """A communicator of one process, as mpi4py has them."""

    def __init__(self, size):
        self._size = size

    def Get_size(self):
        return self._size

    def Is_inter(self):
        return False

    def Split_type(self, kind):
        raise AssertionError(kind)


def test_a_communicator_of_one_process(monkeypatch):
    mpi = types.SimpleNamespace(COMM_NULL=object())
    module = types.SimpleNamespace(MPI=mpi)
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    assert settings_of({}, World(1)) == {
        "KERAS_RING_SIZE": "1",
        "KERAS_RING_RANK": "0",
    }
    with pytest.raises(ConfigurationError, match="keras-ring run has started"):
        settings_of({"KERAS_RING_SIZE": "4"}, World(1))
    with pytest.raises(ConfigurationError, match=r"Received: \[0, 1\]"):
        settings_of({}, [0, 1])
    # What `Split` returns to those that are in no part.
    mpi.COMM_NULL = World(0)
    with pytest.raises(ConfigurationError, match="not COMM_NULL"):
        settings_of({}, mpi.COMM_NULL)


# An end of MPI that hangs, in a process of its own: it may be killed.
ENDING = """
import sys, time, types
from keras_ring.core.engines import mpi
sys.modules["mpi4py.MPI"] = types.SimpleNamespace(
    Is_initialized=lambda: {initialized}, Is_finalized=lambda: {finalized}
)
mpi.limit_finalize(0.1)
time.sleep(0.5 if {finalized} or not {initialized} else 60)
"""


@pytest.mark.parametrize(
    ("initialized", "finalized", "code"),
    [(True, False, -signal.SIGALRM), (True, True, 0), (False, False, 0)],
)
def test_the_end_of_mpi_is_limited(initialized, finalized, code):
    program = ENDING.format(initialized=initialized, finalized=finalized)
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=50, check=False
    )
    assert done.returncode == code
