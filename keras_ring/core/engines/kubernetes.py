"""Variables that Kubernetes, and systems built on it, set in a container."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from keras_ring.core.engines.process_identity import (
    Engine,
    ProcessIdentity,
    number,
)
from keras_ring.core.engines.variables import VariableEngine
from keras_ring.protocol import contract

_INDEX = "JOB_COMPLETION_INDEX"
_PER_NODE = "PET_NPROC_PER_NODE"
# This port is free in each pod: a pod has a network of its own.
_PORT = 29400


@dataclass(frozen=True)
class IndexedJob(Engine):
    """A Job whose pods are numbered; also those of a JobSet.

    It does not tell the number of pods.
    https://kubernetes.io/docs/concepts/workloads/controllers/job
    """

    name: str = "Kubernetes (Indexed Job)"

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns the index of the pod."""
        index = number(environment, _INDEX)
        if index is None:
            return None
        return ProcessIdentity(
            engine=self.name,
            size=None,
            rank=index,
            variables={_INDEX: environment[_INDEX]},
            advice=f"Set {contract.SIZE} to the Job's completions, and "
            f"{contract.RENDEZVOUS} to the name of pod 0 with a port, in the "
            "pods' template; `keras-ring template kubernetes` prints one.",
        )


@dataclass(frozen=True)
class TrainJob(Engine):
    """Kubeflow's TrainJob with a runtime for PyTorch, but without torchrun.

    https://www.kubeflow.org/docs/components/trainer
    """

    name: str = "Kubernetes (Kubeflow TrainJob)"

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns the identity of the node, which runs this process only."""
        identity = _NODES.identify(environment)
        per_node = environment.get(_PER_NODE, "1")
        if identity is None or per_node in ("1", "auto"):
            return identity
        return ProcessIdentity(
            engine=self.name,
            size=None,
            rank=None,
            variables={**identity.variables, _PER_NODE: per_node},
            advice="Set numProcPerNode to 1: this container starts one process "
            "only.",
        )


_NODES = VariableEngine(
    name=TrainJob.name,
    size=("PET_NNODES",),
    rank=("PET_NODE_RANK",),
    address="PET_MASTER_ADDR",
    port="PET_MASTER_PORT",
)


@dataclass(frozen=True)
class LeaderWorkerSet(Engine):
    """A group of pods, of which the first is the leader.

    https://lws.sigs.k8s.io/docs/reference
    """

    name: str = "Kubernetes (LeaderWorkerSet)"

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns the identity in the group."""
        identity = _GROUP.identify(environment)
        leader = environment.get("LWS_LEADER_ADDRESS", "")
        if identity is None or not leader:
            return identity
        return replace(identity, address=f"{leader}:{_PORT}")


_GROUP = VariableEngine(
    name=LeaderWorkerSet.name,
    size=("LWS_GROUP_SIZE",),
    rank=("LWS_WORKER_INDEX",),
)
