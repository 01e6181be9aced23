"""What is compared: the cases, and how each system is started."""

import dataclasses
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

from keras_ring.bench import cases

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks" / "peers"
FLOOR = "none"
MPI = "mpi"
# Sums, because not every system divides; all reduce float32.
_SETTINGS = {"dtype": "float32", "op": "Sum"}
_STEPS = (("resnet50", False), ("resnet50", True), ("many_small", False))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How a system is started.

    Args:
        name: What it is called in the report.
        command: Program and arguments, without the two files of
            `peer_main`.
        environment: Variables beside those of this process.
        num_addresses: How many free ports of this host it is to be told of.
        missing: Why it cannot run here; empty if it can.
    """

    name: str
    command: tuple[str, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    num_addresses: int = 0
    missing: str = ""


def make_sections(sections, *, sizes, sweep_bytes, sweep_tensors):
    """Returns the cases by section: `ladder`, `steps`, `sweep`.

    Args:
        sections: Which of them.
        sizes: Of the ladder, in bytes.
        sweep_bytes: What all tensors of the sweep hold together.
        sweep_tensors: How many tensors they are, point by point.
    """
    made = {}
    if "ladder" in sections:
        made["ladder"] = cases.allreduce(sizes, **_SETTINGS)
    if "steps" in sections:
        made["steps"] = [
            cases.step(name, grouped=grouped, fresh=fresh, **_SETTINGS)
            for grouped in (False, True)
            for name, fresh in _STEPS
        ]
    if "sweep" in sections:
        made["sweep"] = [
            case
            for grouped in (False, True)
            for case in cases.parts(
                sweep_tensors, sweep_bytes, grouped=grouped, **_SETTINGS
            )
        ]
    return made


def make_plans(num_ranks, variants=(), mpi_python=None, mpirun_flags=()):
    """Returns all systems, those that cannot run here too.

    Args:
        num_ranks: Number of ranks.
        variants: (name, environment) of each variant of keras_ring.
        mpi_python: A Python that has mpi4py and NumPy, in an environment of
            its own, with `mpirun` beside it.
        mpirun_flags: For `mpirun`.
    """
    ours = _under_our_launcher(num_ranks, "keras_ring_peer.py")
    plans = [
        Plan(name=FLOOR, command=ours, environment={"PEER_API": "none"}),
        Plan(name="keras_ring", command=ours),
    ]
    plans += [
        Plan(name=name, command=ours, environment=environment)
        for name, environment in variants
    ]
    plans += [
        _mpi(num_ranks, mpi_python, mpirun_flags),
        Plan(
            name="torch gloo",
            command=_under_our_launcher(num_ranks, "torch_peer.py"),
            environment={"GLOO_SOCKET_IFNAME": "lo"},
            missing=_not_importable("torch"),
        ),
        Plan(
            name="horovod",
            command=(
                *("horovodrun", "-np", str(num_ranks)),
                *(sys.executable, str(PEERS / "horovod_peer.py")),
            ),
            missing=_not_importable("horovod"),
        ),
        Plan(
            name="tf.distribute",
            command=_under_our_launcher(num_ranks, "tf_distribute_peer.py"),
            num_addresses=num_ranks,
        ),
    ]
    return plans


def parse_variant(text):
    """Returns (name, environment) of "name:KEY=VALUE,KEY=VALUE".

    Raises:
        ValueError: If it is not of that form.
    """
    name, _, settings = text.partition(":")
    pairs = [pair.partition("=") for pair in settings.split(",")]
    if not name or not all(key and equals for key, equals, _ in pairs):
        raise ValueError(
            f"{text!r} is not of the form name:KEY=VALUE,KEY=VALUE"
        )
    return name, {key: value for key, _, value in pairs}


def free_addresses(num):
    """Returns so many addresses of this host that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(num)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return [f"127.0.0.1:{port}" for port in ports]


def environment_of(plan):
    """Returns all variables for a system's processes."""
    path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "CUDA_VISIBLE_DEVICES": "",
        **plan.environment,
    }
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if plan.num_addresses:
        addresses = ",".join(free_addresses(plan.num_addresses))
        environment["PEER_ADDRESSES"] = addresses
    return environment


def _under_our_launcher(num_ranks, script):
    return (
        *(sys.executable, "-m", "keras_ring", "run", "-np", str(num_ranks)),
        *("--", sys.executable, str(PEERS / script)),
    )


def _mpi(num_ranks, python, flags):
    if python is None:
        return Plan(name=MPI, missing="no --mpi-python given")
    # Not resolved: a virtual environment's Python is a link out of it.
    mpirun = Path(python).with_name("mpirun")
    probe = (str(python), "-c", "import mpi4py, numpy")
    try:
        subprocess.run(probe, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return Plan(name=MPI, missing=f"mpi4py cannot be imported: {error}")
    return Plan(
        name=MPI,
        command=(
            *(str(mpirun), "-np", str(num_ranks), *flags),
            *(str(python), str(PEERS / "mpi_peer.py")),
        ),
        missing="" if mpirun.exists() else f"there is no {mpirun}",
    )


def _not_importable(module):
    if importlib.util.find_spec(module) is None:
        return f"{module} is not installed"
    return ""
