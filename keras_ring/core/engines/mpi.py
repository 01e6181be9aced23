"""MPI: its processes exchange the invitation by a broadcast of mpi4py."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from keras_ring import errors
from keras_ring._typing import Communicator
from keras_ring.core.engines import invitations
from keras_ring.core.engines.invitations import Invitation, Meeting
from keras_ring.core.engines.process_identity import ProcessIdentity
from keras_ring.core.engines.variables import VariableEngine
from keras_ring.protocol import contract


@dataclass(frozen=True, kw_only=True)
class MpiEngine(VariableEngine):
    """A launcher of MPI programs."""

    def meet(
        self, identity: ProcessIdentity, environment: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Meeting]:
        """Brings the processes of `MPI.COMM_WORLD` together.

        Raises:
            StartError: If mpi4py is missing, or uses another MPI than this
                launcher.
        """
        found = ", ".join(f"{k}={v}" for k, v in identity.variables.items())
        started = (
            f"This process is rank {identity.rank} of {identity.size} that "
            f"{self.name} has started ({found})"
        )
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise errors.StartError(
                f"{started}. To bring them together keras_ring needs mpi4py, "
                f"which cannot be imported: {error}. Install it: `pip install "
                "mpi4py`; or set KERAS_RING_RENDEZVOUS and "
                "KERAS_RING_JOB_KEY_FILE, or KERAS_RING_SIZE=1 for processes "
                "that train alone."
            ) from None
        world = MPI.COMM_WORLD
        if world.Get_size() != identity.size:
            library = MPI.Get_library_version().splitlines()[0]
            raise errors.StartError(
                f"{started}; but mpi4py's COMM_WORLD has {world.Get_size()}. "
                f"It runs on another MPI than the launcher: {library.strip()} "
                "(MPI4PY_LIBMPI chooses)."
            )
        return meet(world, environment)


def is_usable(communicator: Communicator) -> bool:
    """Returns whether the processes of a communicator can form a job."""
    if not hasattr(communicator, "Split_type"):
        return False
    from mpi4py import MPI

    return bool(communicator != MPI.COMM_NULL and not communicator.Is_inter())


@contextlib.contextmanager
def meet(
    communicator: Communicator, environment: Mapping[str, str]
) -> Iterator[Meeting]:
    """Brings the processes of a communicator together. All must call it.

    Args:
        communicator: An intracommunicator.
        environment: Environment of this process.

    Raises:
        StartError: On all processes, if the others cannot reach rank 0, or if
            they are to send through an MPI that does not support it.
    """
    from mpi4py import MPI

    rank, size = communicator.Get_rank(), communicator.Get_size()
    local = communicator.Split_type(MPI.COMM_TYPE_SHARED)
    one_host = local.Get_size() == size
    local.Free()
    with contextlib.ExitStack() as stack:
        listener, told, failure = None, None, None
        if rank == 0:
            try:
                invitation, listener = stack.enter_context(
                    invitations.invite(environment, one_host=one_host)
                )
                told = invitation.encode()
            except Exception as error:
                failure = error
        # Rank 0 decides: the environments of the ranks may differ.
        through_mpi = environment.get(contract.COLLECTIVE) == "mpi"
        # The other processes receive the reason if rank 0 has failed.
        told, reason, through_mpi = communicator.bcast(
            (
                told,
                failure and f"{type(failure).__name__}: {failure}",
                through_mpi,
            ),
            root=0,
        )
        if failure is not None:
            raise failure
        if told is None:
            raise errors.StartError(f"Rank 0 could not start: {reason}")
        yield Meeting(
            size=size,
            rank=rank,
            invitation=Invitation.decode(told),
            listener=listener,
            mpi=_plane(communicator) if through_mpi else "",
        )


def _plane(communicator: Communicator) -> str:
    """Returns the value of `KERAS_RING_MPI`. All processes must call it.

    The communicator is a new one, so that messages of the program do not mix
    with those of keras_ring. The core frees it.

    Raises:
        StartError: If MPI does not support calls of several threads at a time.
    """
    from mpi4py import MPI

    levels = communicator.allgather(MPI.Query_thread())
    wanted = MPI.THREAD_MULTIPLE
    ranks = [str(rank) for rank, level in enumerate(levels) if level < wanted]
    if ranks:
        raise errors.StartError(
            f"{contract.COLLECTIVE} is mpi, but on ranks {', '.join(ranks)} "
            "MPI was started without MPI_THREAD_MULTIPLE: keras_ring calls it "
            "from a thread of its own, while the program may, too. mpi4py asks "
            "for it unless `mpi4py.rc.thread_level` says otherwise, or "
            "something else has started MPI before."
        )
    own = communicator.Dup()
    own.Set_errhandler(MPI.ERRORS_RETURN)
    handles = MPI._handleof(own), MPI._handleof(MPI.BYTE)
    words = MPI._sizeof(MPI.Comm), *handles, MPI.__file__
    return " ".join(map(str, words))


def limit_finalize(seconds: float) -> None:
    """Limits the time that MPI takes to end after a job was lost.

    The processes of MPI end together. If one was lost, the others may wait for
    it without end; SIGALRM ends them.

    Args:
        seconds: Float, the limit.
    """
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


OPEN_MPI = MpiEngine(
    name="mpirun (Open MPI)",
    size=("OMPI_COMM_WORLD_SIZE",),
    rank=("OMPI_COMM_WORLD_RANK",),
)
MVAPICH = MpiEngine(
    name="mpirun (MVAPICH)",
    size=("MV2_COMM_WORLD_SIZE",),
    rank=("MV2_COMM_WORLD_RANK",),
)
JSRUN = MpiEngine(
    name="jsrun",
    size=("JSM_NAMESPACE_SIZE",),
    rank=("JSM_NAMESPACE_RANK",),
)
FLUX = MpiEngine(
    name="flux run",
    size=("FLUX_JOB_SIZE",),
    rank=("FLUX_TASK_RANK",),
)


@dataclass(frozen=True, kw_only=True)
class Hydra(MpiEngine):
    """The launcher of MPICH and Intel MPI."""

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns the identity, unless srun has set the same variables."""
        if "MPI_LOCALRANKID" not in environment and (
            "SLURM_STEP_ID" in environment
        ):
            return None
        return super().identify(environment)


MPICH = Hydra(
    name="mpiexec (MPICH, Intel MPI)", size=("PMI_SIZE",), rank=("PMI_RANK",)
)
