"""What init() says to those that have started it in another way."""

import json
import re
import sys
import types

import pytest

from keras_ring import job
from keras_ring._launch_protocol.engines import ENGINES, place_among_several
from keras_ring._runtime import native, start_checks
from keras_ring.errors import ConfigurationError, StartError

TF_CONFIG = json.dumps(
    {
        "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]},
        "task": {"type": "worker", "index": 1},
    }
)
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
    "mpiexec (MPICH, Intel MPI)": ({"PMI_SIZE": "3", "PMI_RANK": "0"}, 3, 0),
    "flux run": ({"FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "1"}, 2, 1),
    "srun (Slurm)": ({"SLURM_NTASKS": "4", "SLURM_PROCID": "3"}, 4, 3),
    "torchrun, or a like of it": ({"WORLD_SIZE": "4", "RANK": "1"}, 4, 1),
    "a launcher of Keras": ({"KERAS_DISTRIBUTION_NUM_PROCESSES": "4"}, 4, None),
    "Kubernetes (LeaderWorkerSet)": (
        {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0"},
        2,
        0,
    ),
    "the one that has set TF_CONFIG": ({"TF_CONFIG": TF_CONFIG}, 3, 2),
}


def test_the_table_above_is_whole():
    assert [engine.name for engine in ENGINES] == list(STARTED)


KEY = "ab" * 32


@pytest.mark.parametrize("name", STARTED)
def test_several_processes_of_another_launcher_are_refused(name):
    variables, size, rank = STARTED[name]
    environment = {"HOME": "/", **variables}
    place = place_among_several(environment)
    assert (place.engine, place.size, place.rank) == (name, size, rank)
    with pytest.raises(StartError) as refused:
        start_checks.engine_settings(environment)
    text = str(refused.value)
    for variable, value in variables.items():
        assert f"{variable}={value}" in text
    assert f"keras-ring run -np {size} " in text
    assert "KERAS_RING_SIZE=1" in text
    # Ranks of ours, and who says that this is one process.
    start_checks.engine_settings({**environment, "KERAS_RING_SIZE": "1"})
    with pytest.raises(StartError):
        start_checks.engine_settings({**environment, "KERAS_RING_SIZE": ""})


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
        (
            {
                **STARTED["mpirun (Open MPI)"][0],
                "OMPI_COMM_WORLD_RANK": "1",
                "KERAS_RING_RENDEZVOUS": "h:7",
            },
            "h:7",
        ),
    ],
)
def test_engine_that_tells_all_makes_ranks(variables, address):
    assert start_checks.engine_settings(
        {**variables, "KERAS_RING_JOB_KEY": KEY}
    ) == {
        "KERAS_RING_SIZE": "4",
        "KERAS_RING_RANK": "1",
        "KERAS_RING_RENDEZVOUS": address,
    }
    with pytest.raises(StartError, match="KERAS_RING_JOB_KEY_FILE"):
        start_checks.engine_settings(variables)


@pytest.mark.parametrize("lost", ["MASTER_ADDR", "MASTER_PORT", "RANK"])
def test_engine_that_does_not_tell_all_is_refused(lost):
    environment = {**TORCHRUN, "KERAS_RING_JOB_KEY": KEY}
    del environment[lost]
    with pytest.raises(StartError, match="would train alone"):
        start_checks.engine_settings(environment)


def test_key_from_a_file(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    given = {"KERAS_RING_JOB_KEY_FILE": str(path)}
    for variables in (TORCHRUN, {"KERAS_RING_SIZE": "2"}):
        settings = start_checks.engine_settings({**variables, **given})
        assert settings["KERAS_RING_JOB_KEY"] == KEY
    path.chmod(0o640)
    with pytest.raises(StartError, match=r"others can read .*chmod 600"):
        start_checks.engine_settings({**TORCHRUN, **given})
    path.unlink()
    with pytest.raises(StartError, match="No such file"):
        start_checks.engine_settings({**TORCHRUN, **given})


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {"WORLD_SIZE": "big"},
        {"RANK": "3"},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{}"},
        {"TF_CONFIG": "[1]"},
        {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'},
        {"TF_CONFIG": '{"cluster": {"worker": 3}}'},
    ],
)
def test_one_process_is_no_matter(environment):
    assert start_checks.engine_settings(environment) == {}


def test_the_engine_that_is_nearest_counts():
    both = {**STARTED["srun (Slurm)"][0], **STARTED["mpirun (Open MPI)"][0]}
    assert place_among_several(both).engine == "mpirun (Open MPI)"
    one = {**both, "OMPI_COMM_WORLD_SIZE": "1"}
    assert place_among_several(one).engine == "srun (Slurm)"


KNOWN = ["KERAS_RING_FUSION_THRESHOLD", "KERAS_RING_STALL_CHECK_TIME"]


def test_variables_without_effect_are_named_with_what_was_meant():
    text = start_checks.ignored_variables(
        {
            "KERAS_RING_FUSION_TRESHOLD": "1",
            "KERAS_RING_FUSION_THRESHOLD": "1",
            "KERAS_RING_ERROR_FILE": "/x",
            "KERAS_RING_TEST_SEED": "1",
            "KERAS_RING_QQQQ": "1",
            "HOROVOD_FUSION_THRESHOLD": "1",
            "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
            "HOROVOD_NUM_NCCL_STREAMS": "1",
        },
        KNOWN,
    )
    assert text == (
        "Variables without effect: "
        "HOROVOD_FUSION_THRESHOLD (use KERAS_RING_FUSION_THRESHOLD), "
        "HOROVOD_NUM_NCCL_STREAMS (none here), "
        "HOROVOD_STALL_CHECK_TIME_SECONDS (use KERAS_RING_STALL_CHECK_TIME), "
        "KERAS_RING_FUSION_TRESHOLD (is it KERAS_RING_FUSION_THRESHOLD?), "
        "KERAS_RING_QQQQ"
    )
    assert start_checks.ignored_variables({"HOME": "/"}, KNOWN) == ""


def test_what_is_named_in_place_of_horovods_is_known():
    known = start_checks.known_variables()
    for ours in start_checks._HOROVOD.values():
        assert "KERAS_RING_" + ours.partition("=")[0] in known
    every = dict.fromkeys(known, "1")
    assert start_checks.ignored_variables(every, known) == ""


@pytest.mark.parametrize("imported", [False, True])
def test_another_backend_is_refused_on_one_line(monkeypatch, imported):
    keras = None
    if imported:
        backend = types.SimpleNamespace(backend=lambda: "jax")
        keras = types.SimpleNamespace(backend=backend)
    else:
        monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setitem(sys.modules, "keras", keras)
    with pytest.raises(ConfigurationError) as refused:
        start_checks.check_backend()
    assert re.fullmatch(r"Keras runs on 'jax' here .*", str(refused.value))
    if not imported:
        monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
        start_checks.check_backend()


@pytest.mark.parametrize("check", ["check_backend", "engine_settings"])
def test_init_asks(monkeypatch, check):
    """Before anything is started."""

    def refuse(*_):
        raise ConfigurationError("refused")

    def not_started(*_):
        raise AssertionError("started")

    monkeypatch.setattr(start_checks, check, refuse)
    monkeypatch.setattr(native.core(), "init", not_started)
    with pytest.raises(ConfigurationError, match="refused"):
        job.init()


def test_init_names_variables_without_effect(monkeypatch, caplog):
    monkeypatch.setenv("KERAS_RING_STAL_CHECK_TIME", "5")
    monkeypatch.setenv("KERAS_RING_SIZE", "1")
    job.init()
    job.shutdown()
    assert "is it KERAS_RING_STALL_CHECK_TIME?" in caplog.text
