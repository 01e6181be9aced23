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
    """Returns what this rank's runtime has counted since `init()`.

    Returns:
        A dictionary of integers, which only grow, but for the arena's.

        - `control_bytes_sent`, `control_bytes_received` [bytes],
          `control_messages_sent`: negotiation with other ranks.
        - `data_bytes_sent`, `data_bytes_received` [bytes]: tensors.
        - `buckets`, `entries`: buckets that were executed, and the tensors in
          them.
        - `cache_hits`, `cache_misses`: requests that the response cache knew,
          and did not.
        - `last_buckets`, `late_ns` [nanoseconds]: how many buckets waited for
          this rank, as the last of all to be ready, and for how long after the
          first; the sum over these buckets.
        - `rejected_connections`: connections without the job's key.
        - `steps`, `step_ns` [nanoseconds], `step_bytes` [bytes],
          `step_tensors`: steps of a training that had the same tensors as the
          one before, how long they took, and their tensors; on rank 0 only.
        - `negotiate_ns`, `queue_ns` [nanoseconds, the sum over tensors]: from
          the submission of a tensor until all ranks have agreed on it, and from
          then until its bucket is begun.
        - `execute_ns` [nanoseconds, the sum over buckets]: from then until the
          bucket is done. Of that, `wait_ns`, `pack_ns`, `reduce_ns` and
          `unpack_ns`: in which it waited for other ranks, was copied to where
          others read it, combined, and copied into results.
        - `callback_ns` [nanoseconds]: in which TensorFlow's operations were
          finished.
        - `pending`: tensors that are asked for and not finished now;
          `submitted_ns`, `done_ns` [nanoseconds of the steady clock]: when the
          last was asked for and finished; `submitted_execute_ns`
          [nanoseconds]: what `execute_ns` was when it was asked for;
          `began_ns`: when the bucket that runs was begun.
        - `activity`: what the program does now: 0 computing, 1 waiting for its
          input pipeline, 2 writing or reading a checkpoint, 3 evaluating, 4
          predicting; `activity_ns`: since when, by the steady clock.
        - `epoch`, `fit_steps`, `samples` (from its input pipeline), `fit_ns`
          [nanoseconds]: how far training is, and the time in it.
        - `data_wait_ns`, `checkpoint_ns`, `evaluate_ns` [nanoseconds]: in which
          the program waited for its input pipeline, wrote or read checkpoints,
          and evaluated.
        - `arena_bytes_in_use`, `arena_bytes_kept`, `arena_bytes_returned`
          [bytes]: memory of tensors that other ranks of the host can read: in
          use, free and kept, given back to the system.

    Raises:
        NotInitializedError: Before `init()`.

    Example:
    ```python
    before = kr.metrics()
    model.fit(x, y)
    waited = kr.metrics()["wait_ns"] - before["wait_ns"]
    print(f"rank {kr.rank()} waited for others for {waited / 1e9:.1f} s")
    ```
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
