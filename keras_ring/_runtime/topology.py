"""This rank's place in its job, and what its runtime has counted."""

from __future__ import annotations

from typing import Any

from keras_ring import errors
from keras_ring._runtime import native


def is_initialized() -> bool:
    """Whether `init()` has succeeded and `shutdown()` was not called since."""
    return bool(native.core().is_initialized())


def rank() -> int:
    """This process's rank: an integer from 0 to `size() - 1`.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().rank)


def size() -> int:
    """The number of ranks of the job.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().size)


def local_rank() -> int:
    """This process's rank among those on the same host.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().local_rank)


def local_size() -> int:
    """The number of ranks on this host.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().local_size)


def cross_rank() -> int:
    """The index of this host among those that have such a local rank.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().cross_rank)


def cross_size() -> int:
    """The number of hosts that have such a local rank.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().cross_size)


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return bool(topology().homogeneous)


def xla_built() -> bool:
    """Whether collectives work in functions with `jit_compile=True`.

    It may be called before `init()`.
    """
    return native.xla_is_built()


def metrics() -> dict[str, int]:
    """What this rank's runtime has done since `init()`.

    Returns:
        A dictionary of counters: bytes and messages of the control plane,
        bytes of the data plane, buckets and tensor entries executed, hits and
        misses of the response cache, connections turned away.

    Raises:
        NotInitializedError: Before `init()`.
    """
    topology()
    return dict(native.core().metrics())


def topology() -> Any:
    """Returns where this rank stands, as the runtime knows it.

    Raises:
        NotInitializedError: Before `init()`.
    """
    core = native.core()
    try:
        return core.topology()
    except core.StatusError:
        raise errors.NotInitializedError(
            "keras_ring is not initialized: call keras_ring.init() at the "
            "start of the program (and not after shutdown())"
        ) from None
