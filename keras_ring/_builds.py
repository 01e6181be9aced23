"""What keras_ring was built with, as programs written for Horovod ask.

They ask in order to choose a backend. Here nothing has to be chosen:
collectives go through shared memory and TCP (optionally TLS), or, where mpirun
has started the ranks and `KERAS_RING_COLLECTIVE` is mpi, through MPI. None of
the other libraries is needed.
"""

from __future__ import annotations

import os

from keras_ring._launch_protocol import contract


def mpi_built() -> bool:
    """Whether collectives can go through MPI: yes, that of mpi4py."""
    return True


def mpi_enabled() -> bool:
    """Whether collectives are to go through MPI."""
    return os.environ.get(contract.COLLECTIVE) == "mpi"


def mpi_threads_supported() -> bool:
    """Whether MPI is used and takes calls from several threads.

    `init()` refuses one that does not. Collectives of keras_ring may be called
    from any thread; give those of several threads names.
    """
    return mpi_enabled()


def gloo_built() -> bool:
    """Whether collectives can go through Gloo: no."""
    return False


def gloo_enabled() -> bool:
    """Whether collectives go through Gloo: no."""
    return False


def nccl_built() -> int:
    """The version of NCCL that collectives can go through: 0, for none."""
    return 0


def cuda_built() -> bool:
    """Whether collectives can read the memory of CUDA devices: no."""
    return False


def rocm_built() -> bool:
    """Whether collectives can read the memory of ROCm devices: no."""
    return False


def ccl_built() -> bool:
    """Whether collectives can go through oneCCL: no."""
    return False


def ddl_built() -> bool:
    """Whether collectives can go through IBM DDL: no."""
    return False


def check_build() -> bool:
    """Prints versions and what is missing, as `keras-ring check` does.

    Returns:
        Boolean, whether a job can run here.
    """
    from keras_ring.cli.check import run_check

    return run_check(as_json=False) == 0
