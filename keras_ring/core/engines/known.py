"""All engines, in the order in which they are asked."""

from collections.abc import Mapping

from keras_ring.core.engines import kubernetes, mpi, variables
from keras_ring.core.engines.process_identity import Engine, ProcessIdentity
from keras_ring.core.engines.slurm import SlurmEngine
from keras_ring.core.engines.tf_config import TfConfigEngine

# An engine that starts processes through another one comes before that one:
# under mpirun in an allocation, each rank sees the variables of its node's
# daemon, which is a task of Slurm.
ENGINES: tuple[Engine, ...] = (
    variables.HOROVODRUN,
    mpi.OPEN_MPI,
    mpi.MVAPICH,
    mpi.JSRUN,
    mpi.FLUX,
    mpi.MPICH,
    SlurmEngine(),
    variables.TORCHRUN,
    variables.KERAS,
    kubernetes.TrainJob(),
    kubernetes.LeaderWorkerSet(),
    TfConfigEngine(),
    kubernetes.IndexedJob(),
)


def identity_among_several(
    environment: Mapping[str, str],
) -> tuple[Engine, ProcessIdentity] | None:
    """Returns the identity of a process that was started with others.

    Args:
        environment: Environment of the process.

    Returns:
        The first engine that has started more than one process, and what it
        says of this one, or `None` if there is none. An engine that does not
        tell the number of processes, or the index of this one, counts only if
        no other engine says that this is the only process.
    """
    told = [(engine, engine.identify(environment)) for engine in ENGINES]
    alone = any(
        identity is not None and identity.size == 1 for _, identity in told
    )
    for engine, identity in told:
        if identity is None or identity.size == 1:
            continue
        if not alone or None not in (identity.size, identity.rank):
            return engine, identity
    return None
