"""Facts of the build, for programs that were written for Horovod.

They use these facts to choose a backend. keras_ring needs no choice:
collectives use shared memory and TCP (optionally TLS), or MPI if mpirun has
started the ranks and `KERAS_RING_COLLECTIVE` is mpi. None of the other
libraries is needed.
"""

from __future__ import annotations

import os

from keras_ring.core import gpus
from keras_ring.protocol import contract


def mpi_built() -> bool:
    """Returns whether collectives can use MPI: `True`, that of mpi4py."""
    return True


def mpi_enabled() -> bool:
    """Returns whether `KERAS_RING_COLLECTIVE` selects MPI."""
    return os.environ.get(contract.COLLECTIVE) == "mpi"


def mpi_threads_supported() -> bool:
    """Returns whether MPI is used and supports calls from several threads.

    `init()` raises an error if MPI does not support that. Collectives of
    keras_ring may be called from any thread; give those of several threads
    names.
    """
    return mpi_enabled()


def gloo_built() -> bool:
    """Returns whether collectives can use Gloo: `False`."""
    return False


def gloo_enabled() -> bool:
    """Returns whether collectives use Gloo: `False`."""
    return False


def nccl_built() -> int:
    """Returns the version of NCCL that collectives can use; `0` for none.

    It is looked for on this host, as is the driver without which it is of no
    use; nothing of either is part of the build. An integer as NVIDIA writes it,
    such as `22809`. Collectives use it where `KERAS_RING_GPU_COLLECTIVE` is
    `"nccl"`.
    """
    return gpus.versions()[1]


def cuda_built() -> bool:
    """Returns whether collectives read tensors of CUDA devices: `True`."""
    return True


def rocm_built() -> bool:
    """Returns whether collectives can read memory of ROCm devices: `False`."""
    return False


def ccl_built() -> bool:
    """Returns whether collectives can use oneCCL: `False`."""
    return False


def ddl_built() -> bool:
    """Returns whether collectives can use IBM DDL: `False`."""
    return False
