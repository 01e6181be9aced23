"""What others that start processes tell each of them, in one table.

MPI, Slurm, torchrun, Kubernetes and the like give a process its place among
those that were started together through variables of their own.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of this process, as an engine tells it.

    Args:
        engine: Name of the engine.
        size: Number of processes that were started together.
        rank: Index of this one; None where the engine does not say.
        variables: What it was read from, with the values.
        address: `host:port` where process 0 can serve the others; None where
            the engine does not say.
    """

    engine: str
    size: int
    rank: int | None
    variables: Mapping[str, str]
    address: str | None = None


class Engine(Protocol):
    """Something that starts processes."""

    def place(self, environment: Mapping[str, str]) -> Place | None:
        """Returns what it tells this process, None if it tells nothing."""


@dataclass(frozen=True, kw_only=True)
class VariableEngine:
    """An engine that has a variable for each number.

    Of several names for one number the first that is set counts.

    Args:
        name: As a user knows it.
        size: Number of processes.
        rank: Index of this one.
        local_size: Number of processes on this host.
        local_rank: Index of this one among them.
        address: Host on which process 0 can be reached; where there is no
            `port`, with a port, and perhaps of several processes.
        port: Port on that host.
        port_taken: Variable that is `"True"` where the engine itself listens
            on that port; the next one is ours then.
    """

    name: str
    size: tuple[str, ...]
    rank: tuple[str, ...]
    local_size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    port: tuple[str, ...] = ()
    port_taken: str = ""

    def place(self, environment: Mapping[str, str]) -> Place | None:
        """Returns what the variables say, None if none gives a size."""
        size = _first(self.size, environment)
        if size is None:
            return None
        rank = _first(self.rank, environment)
        names = [size] if rank is None else [size, rank]
        return Place(
            engine=self.name,
            size=int(environment[size]),
            rank=None if rank is None else int(environment[rank]),
            variables={name: environment[name] for name in names},
            address=self._address(environment),
        )

    def _address(self, environment: Mapping[str, str]) -> str | None:
        hosts = [environment.get(name, "") for name in self.address]
        host = next(filter(None, hosts), "")
        if not self.port:
            first = host.partition(",")[0].strip()
            return first if re.search(r":[0-9]+$", first) else None
        name = _first(self.port, environment)
        if not host or name is None:
            return None
        port = int(environment[name])
        if environment.get(self.port_taken) == "True":
            port += 1
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _first(
    names: tuple[str, ...], environment: Mapping[str, str]
) -> str | None:
    """Returns the first of these variables that holds a number."""
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit():
            return name
    return None


@dataclass(frozen=True)
class TfConfigEngine:
    """Whoever describes a cluster in `TF_CONFIG`, as Kubeflow does."""

    name: str = "the one that has set TF_CONFIG"

    def place(self, environment: Mapping[str, str]) -> Place | None:
        """Returns the place among chief and workers; others do not train."""
        text = environment.get("TF_CONFIG", "")
        try:
            config = json.loads(text)
            cluster = config["cluster"]
            hosts = {
                kind: len(cluster.get(kind, ()))
                for kind in ("chief", "master", "worker")
            }
            task = config.get("task", {})
            kind, index = task.get("type"), int(task.get("index", 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        before = sum(hosts.values()) - hosts["worker"]
        rank = index + (before if kind == "worker" else 0)
        return Place(
            engine=self.name,
            size=sum(hosts.values()),
            rank=rank if kind in hosts else None,
            variables={"TF_CONFIG": text},
        )


# Who starts through another comes before that one.
ENGINES: tuple[Engine, ...] = (
    VariableEngine(
        name="horovodrun",
        size=("HOROVOD_SIZE",),
        rank=("HOROVOD_RANK",),
        local_size=("HOROVOD_LOCAL_SIZE",),
        local_rank=("HOROVOD_LOCAL_RANK",),
    ),
    VariableEngine(
        name="mpirun (Open MPI)",
        size=("OMPI_COMM_WORLD_SIZE",),
        rank=("OMPI_COMM_WORLD_RANK",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
    ),
    VariableEngine(
        name="mpirun (MVAPICH)",
        size=("MV2_COMM_WORLD_SIZE",),
        rank=("MV2_COMM_WORLD_RANK",),
        local_size=("MV2_COMM_WORLD_LOCAL_SIZE",),
        local_rank=("MV2_COMM_WORLD_LOCAL_RANK",),
    ),
    VariableEngine(
        name="jsrun",
        size=("JSM_NAMESPACE_SIZE",),
        rank=("JSM_NAMESPACE_RANK",),
        local_rank=("JSM_NAMESPACE_LOCAL_RANK",),
    ),
    VariableEngine(
        name="mpiexec (MPICH, Intel MPI)",
        size=("PMI_SIZE",),
        rank=("PMI_RANK",),
        local_size=("MPI_LOCALNRANKS",),
        local_rank=("MPI_LOCALRANKID",),
    ),
    VariableEngine(
        name="flux run",
        size=("FLUX_JOB_SIZE",),
        rank=("FLUX_TASK_RANK",),
        local_rank=("FLUX_TASK_LOCAL_ID",),
    ),
    VariableEngine(
        name="srun (Slurm)",
        size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        rank=("SLURM_PROCID",),
        local_rank=("SLURM_LOCALID",),
    ),
    VariableEngine(
        name="torchrun, or a like of it",
        size=("WORLD_SIZE",),
        rank=("RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        address=("MASTER_ADDR",),
        port=("MASTER_PORT",),
        port_taken="TORCHELASTIC_USE_AGENT_STORE",
    ),
    VariableEngine(
        name="a launcher of Keras",
        size=("KERAS_DISTRIBUTION_NUM_PROCESSES",),
        rank=("KERAS_DISTRIBUTION_PROCESS_ID",),
        address=("KERAS_DISTRIBUTION_JOB_ADDRESSES",),
    ),
    VariableEngine(
        name="Kubernetes (LeaderWorkerSet)",
        size=("LWS_GROUP_SIZE",),
        rank=("LWS_WORKER_INDEX",),
        address=("LWS_LEADER_ADDRESS",),
    ),
    TfConfigEngine(),
)


def place_among_several(environment: Mapping[str, str]) -> Place | None:
    """Returns the place of a process that was started with others.

    Args:
        environment: Of the process.

    Returns:
        What the first engine tells that has started more than one process;
        None if none has.
    """
    for engine in ENGINES:
        place = engine.place(environment)
        if place is not None and place.size > 1:
            return place
    return None
