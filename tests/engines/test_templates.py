"""The files of `keras-ring template`, checked and run."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engines.test_mpi import MPIS
from tests.engines.test_ray import CLUSTER
from tests.lab import slurm as slurm_module
from tests.tiers import few

pytestmark = pytest.mark.timeout(200, func_only=True)
PROGRAM = str(Path(__file__).with_name("rank_checkpoint.py"))
KINDS = ("job", "jobset", "mpijob", "trainjob")


def template(*words):
    return subprocess.run(
        [sys.executable, "-m", "keras_ring", "template", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def manifests(*words):
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all(template("kubernetes", *words)))


def runs_of(text):
    """Returns host, sum, earlier runs and threads of each rank, in order."""
    return sorted(re.findall(r"(\S+) sum=(\S+) runs=(\d+) threads=(\d+)", text))


# --- What they are ---


@pytest.mark.parametrize("engine", ["slurm", "mpi"])
def test_scripts_are_whole(engine):
    text = template(engine, "--", "python", "my train.py", "--x=$y")
    assert "python 'my train.py' '--x=$y'" in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert "@{" not in text


def test_ray_is_python():
    text = template("ray", "--hosts=3", "--", "python3.11", "a.py", '"')
    compile(text, "ray", "exec")
    assert 'COMMAND = ["python3.11", "a.py", "\\""]' in text
    assert "RANKS = 6" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ray", "--", "bash", "x"], "the first word is python and the second"),
        (["ray", "--", "python", "-m", "x"], "and the second a script"),
        (["slurm", "--name", "Train"], "--name 'Train': expected up to 40"),
        (["slurm", "--hosts", "0"], "--hosts 0: expected at least 1"),
        (["kubernetes", "--image", "a b"], "--image 'a b' is no name"),
        (["lsf"], "there is no engine 'lsf'"),
    ],
)
def test_what_makes_no_sense(words, told):
    done = subprocess.run(
        [sys.executable, "-m", "keras_ring", "template", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_each_file_has_a_key_of_its_own():
    def key():
        return manifests()[0]["stringData"]["key"]

    assert len(bytes.fromhex(key())) == 32
    assert key() != key()


# --- Kubernetes ---


@pytest.mark.parametrize("kind", KINDS)
def test_manifests_fit_the_published_schemas(kind):
    validate = pytest.importorskip("kubernetes_validate")
    api = pytest.importorskip("kubeflow_trainer_api.models")
    found = manifests("--kind", kind, "--", "python", "train.py")
    others = {
        "JobSet": api.JobsetV1alpha2JobSet,
        "TrainJob": api.TrainerV1alpha1TrainJob,
    }
    kinds = [manifest["kind"] for manifest in found]
    assert "NetworkPolicy" in kinds
    for manifest in found:
        if manifest["kind"] in others:
            model = others[manifest["kind"]].from_dict(manifest)
            # Nothing is there that the schema does not have.
            assert not _lost(manifest, model.to_dict())
        elif manifest["kind"] == "MPIJob":
            _check_mpi_job(validate, manifest)
        else:
            validate.validate(manifest, "1.30", strict=True)


def _lost(before, after):
    """Returns what a model has dropped of a manifest."""
    if isinstance(before, dict):
        return [
            f"{key}.{lost}"
            for key, value in before.items()
            for lost in (
                _lost(value, after[key]) if key in (after or {}) else [""]
            )
        ]
    if isinstance(before, list):
        pairs = zip(before, after, strict=True)
        return [lost for pair in pairs for lost in _lost(*pair)]
    return []


def _check_mpi_job(validate, manifest):
    """PyPI has no schema of it; its pods have one."""
    spec = manifest["spec"]
    assert manifest["apiVersion"] == "kubeflow.org/v2beta1"
    assert set(spec) == {
        "slotsPerWorker",
        "mpiImplementation",
        "runPolicy",
        "mpiReplicaSpecs",
    }
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    for replicas in spec["mpiReplicaSpecs"].values():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod"},
            **replicas["template"],
        }
        validate.validate(pod, "1.30", strict=True)


def _variables(pod, manifests):
    """Returns what a container of a pod's template finds in its variables."""
    secrets = {
        each["metadata"]["name"]: each["stringData"]
        for each in manifests
        if each["kind"] == "Secret"
    }
    variables = {}
    for row in pod["containers"][0]["env"]:
        if "value" in row:
            variables[row["name"]] = row["value"]
        else:
            source = row["valueFrom"]["secretKeyRef"]
            variables[row["name"]] = secrets[source["name"]][source["key"]]
    return variables


@pytest.mark.parametrize("kind", few(["job", "jobset"], "engines"))
def test_pods_are_ranks(lab, jobs, tmp_path, kind):
    """Hosts of the lab as pods: their names, their variables, their command."""
    words = ("--kind", kind, "--hosts=3", "--ranks-per-host=1")
    found = manifests(
        *words, "--cpus-per-rank=2", "--", sys.executable, PROGRAM
    )
    workload = found[-1]["spec"]
    name = "train-0"
    if kind == "jobset":
        name = "train-ranks-0-0"
        workload = workload["replicatedJobs"][0]["template"]["spec"]
    assert workload["completions"] == workload["parallelism"] == 3
    pod = workload["template"]["spec"]
    (container,) = pod["containers"]
    (tmp_path / "kept").mkdir()
    pods = []
    for index in range(3):
        # The Service gives this name to pod 0.
        entry = f"echo 10.77.0.1 {name}.{pod['subdomain']} >> /etc/hosts"
        subprocess.run(lab.on(f"h{index}", "sh", "-c", entry), check=True)
        local = tmp_path / f"local.{index}"
        local.mkdir()
        command = [
            word.replace("/kept", str(tmp_path / "kept"))
            for word in container["command"] + container["args"]
        ]
        pods.append(
            jobs.start(
                lab.on(f"h{index}", *command),
                **{
                    **_variables(pod, found),
                    "JOB_COMPLETION_INDEX": str(index),
                    "CHECKPOINT_DIR": str(local),
                },
            )
        )
    ended = [pod.communicate(timeout=90) for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0, 0], ended
    out = "".join(out for out, _ in ended)
    assert runs_of(out) == [
        (f"kr-h{index}", "3.0", "0", "2") for index in range(3)
    ]
    assert (tmp_path / "kept" / "runs").read_text() == "1"


@pytest.mark.parametrize("signum", [None, signal.SIGTERM])
def test_a_pod_that_has_to_go_keeps_its_checkpoints(jobs, tmp_path, signum):
    (container,) = manifests()[-1]["spec"]["template"]["spec"]["containers"]
    local, kept = tmp_path / "local", tmp_path / "kept"
    local.mkdir()
    kept.mkdir()
    (kept / "of-the-last-run").touch()
    program = 'ls "$CHECKPOINT_DIR"; touch "$CHECKPOINT_DIR/new"; exec sleep 1'
    command = [w.replace("/kept", str(kept)) for w in container["command"]]
    pod = jobs.start(
        [*command, "sh", "-c", program],
        JOB_COMPLETION_INDEX="0",
        CHECKPOINT_DIR=str(local),
    )
    while not (local / "new").exists():
        time.sleep(0.01)
    if signum:
        pod.send_signal(signum)
    out, err = pod.communicate(timeout=20)
    assert (pod.returncode == 0) == (signum is None), err
    assert out == "of-the-last-run\n"
    assert (kept / "new").exists()


def test_nodes_of_a_train_job_are_ranks(lab, jobs):
    found = manifests(
        *("--kind=trainjob", "--hosts=2", "--ranks-per-host=1"),
        *(
            "--",
            sys.executable,
            str(Path(PROGRAM).parents[1] / "hosts/rank_sums.py"),
        ),
    )
    trainer = found[-1]["spec"]["trainer"]
    pod = {"containers": [trainer]}
    nodes = []
    for node in range(trainer["numNodes"]):
        # As the runtime `torch-distributed` sets them.
        of_the_runtime = {
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(node),
            "PET_MASTER_ADDR": "kr-h0",
            "PET_MASTER_PORT": "29400",
        }
        nodes.append(
            jobs.start(
                lab.on(f"h{node}", *trainer["command"]),
                **_variables(pod, found),
                **of_the_runtime,
            )
        )
    ended = [node.communicate(timeout=60) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], ended
    assert "kr-h1 sum=1.0 local=0/1 cross=1/2" in ended[1][0]


# --- The others ---


@pytest.mark.long("engines")
def test_slurm(lab, jobs, tmp_path):
    if why := slurm_module.missing():
        pytest.skip(why)
    words = ("--hosts=2", "--ranks-per-host=2", "--cpus-per-rank=1")
    path = tmp_path / "train.sh"
    path.write_text(template("slurm", *words, "--", sys.executable, PROGRAM))
    with slurm_module.slurm(lab, ["h0", "h1"]) as slurm:
        for run in range(2):
            slurm.wait_until_idle()
            submit = slurm.on_h0("sbatch", f"-D{tmp_path}", str(path))
            done = jobs.run(
                ["sh", "-c", f'cd {tmp_path} && exec "$@"', "sh", *submit],
                TMPDIR=str(tmp_path),
            )
            assert done.returncode == 0, done.stderr
            text = _log_of_four(tmp_path, run, slurm)
            assert [each for each in runs_of(text) if each[2] == str(run)] == [
                (f"kr-h{host}", "6.0", str(run), "1") for host in (0, 0, 1, 1)
            ]
            kept = tmp_path / "train-checkpoints" / "runs"
            while not kept.exists() or kept.read_text() != str(run + 1):
                time.sleep(0.1)


def _log_of_four(folder, run, slurm):
    """Returns the log once four ranks have told of their run."""
    end = time.monotonic() + 60
    while True:
        logs = sorted(folder.glob("train-*.log"))
        text = "".join(log.read_text() for log in logs)
        if len([each for each in runs_of(text) if each[2] == str(run)]) == 4:
            return text
        assert time.monotonic() < end, text + slurm.logs()
        time.sleep(0.2)


@pytest.mark.long("engines")
@pytest.mark.parametrize("name", MPIS)
def test_mpi(lab, jobs, tmp_path, name):
    mpi = MPIS[name]
    words = ("--hosts=2", "--ranks-per-host=2", "--cpus-per-rank=1")
    path = tmp_path / "train.sh"
    path.write_text(template("mpi", *words, "--", sys.executable, PROGRAM))
    mpi.run()
    for run in range(2):
        done = jobs.run(
            [
                *("sh", "-c", f'cd {tmp_path} && exec "$@"', "sh"),
                *lab.on("h0", "bash", str(path)),
            ],
            limit=90,
            TMPDIR=str(tmp_path),
            HOSTS="kr-h0:2,kr-h1:2",
            **mpi.reach_hosts(),
            **mpi.environment(),
        )
        assert done.returncode == 0, done.stderr
        assert runs_of(done.stdout) == [
            (f"kr-h{host}", "6.0", str(run), "1") for host in (0, 0, 1, 1)
        ]
    assert (tmp_path / "train-checkpoints" / "runs").read_text() == "2"


@pytest.mark.long("engines")
def test_ray(jobs, tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "train.py").write_text(Path(PROGRAM).read_text())
    (tmp_path / "train_ray.py").write_text(
        template(
            *("ray", "--hosts=2", "--cpus-per-rank=1"),
            *("--", "python", "train.py", str(tmp_path)),
        )
    )
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    process = jobs.start([sys.executable, str(script)], with_input=True)
    out, err = process.communicate(
        f"""
import subprocess
os.chdir({str(tmp_path)!r})
for _ in range(2):
    subprocess.run([sys.executable, "train_ray.py"], check=True,
                   env=dict(os.environ, RAY_ADDRESS=cluster.address))
    for rank in range(4):
        print("told", open(f"rank.{{rank}}").read(), end="", flush=True)
""",
        timeout=150,
    )
    assert process.returncode == 0, err + out
    # What actors print comes out, too.
    told = "\n".join(re.findall(r"^told .*$", out, re.M))
    assert [each[1:] for each in runs_of(told)] == [("6.0", "0", "1")] * 4 + [
        ("6.0", "1", "1")
    ] * 4
    assert (tmp_path / "train-checkpoints" / "runs").read_text() == "2"
