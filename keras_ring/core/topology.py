"""The ranks and sizes of this process and its job, and its metrics."""

from __future__ import annotations

from typing import Any

from keras_ring import errors
from keras_ring.core import native


def is_initialized() -> bool:
    """Returns whether `init()` has succeeded without a later `shutdown()`."""
    return bool(native.core().is_initialized())


def rank() -> int:
    """Returns this process's rank, an integer from 0 to `size() - 1`.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().rank)


def size() -> int:
    """Returns the number of ranks of the job.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().size)


def local_rank() -> int:
    """Returns this process's rank among those on the same host.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().local_rank)


def local_size() -> int:
    """Returns the number of ranks on this host.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().local_size)


def cross_rank() -> int:
    """Returns the index of this host among those with this local rank.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().cross_rank)


def cross_size() -> int:
    """Returns the number of hosts that have this local rank.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return int(topology().cross_size)


def is_homogeneous() -> bool:
    """Returns whether every host has the same number of ranks.

    Raises:
        NotInitializedError: Before `init()`.
    """
    return bool(topology().homogeneous)


def is_elastic() -> bool:
    """Returns whether the job goes on without the ranks that it loses."""
    return bool(native.core().is_elastic())


def stays_alone() -> bool:
    """Returns whether this is the only rank of the job, and stays so.

    Others may join an elastic job. What it traces while it has one rank, they
    may run together.
    """
    return size() == 1 and not is_elastic()


def metrics() -> dict[str, int]:
    """Returns counters and times of this rank's runtime since `init()`.

    Returns:
        A dictionary of integers. Counters and sums of times only grow.

        - `control_bytes_sent`, `control_bytes_received` [bytes],
          `control_messages_sent`: negotiation with other ranks.
        - `data_bytes_sent`, `data_bytes_received` [bytes]: tensors.
        - `buckets`, `entries`: buckets that were executed, and the tensors in
          them.
        - `cache_hits`, `cache_misses`: requests that were in the response
          cache, and requests that were not.
        - `last_buckets`, `late_ns` [nanoseconds]: the number of buckets for
          which this rank was the last to be ready, and the time from the first
          rank until this one, as the sum over these buckets.
        - `rejected_connections`: connections without the job's key.
        - `steps`, `step_ns` [nanoseconds], `step_bytes` [bytes],
          `step_tensors`: steps of a training that had the same tensors as the
          one before, their duration, and their tensors; on rank 0 only.
        - `negotiate_ns`, `queue_ns` [nanoseconds, the sum over tensors]: from
          the submission of a tensor until all ranks have agreed on it, and from
          then until its bucket is begun.
        - `execute_ns` [nanoseconds, the sum over buckets]: from then until the
          bucket is done. Parts of it are `wait_ns`, `pack_ns`, `reduce_ns` and
          `unpack_ns`: the time in which the bucket waited for other ranks, was
          copied to where they read it, was combined, and was copied into
          results.
        - `callback_ns` [nanoseconds]: the time in which TensorFlow's operations
          were finished.
        - `pending`: tensors that are submitted and not finished now.
          `submitted_ns`, `done_ns` [nanoseconds of the steady clock]: the times
          of the last submission and the last end. `submitted_execute_ns`
          [nanoseconds]: the value of `execute_ns` at that submission.
          `began_ns`: the time at which the running bucket was begun.
        - `activity`: the present activity of the program: 0 computing, 1
          waiting for its input pipeline, 2 writing or reading a checkpoint, 3
          evaluating, 4 predicting. `activity_ns`: its begin, by the steady
          clock.
        - `epoch`, `fit_steps`, `samples` (from its input pipeline), `fit_ns`
          [nanoseconds]: the progress of training, and the time in it.
        - `data_wait_ns`, `checkpoint_ns`, `evaluate_ns` [nanoseconds]: the time
          in which the program waited for its input pipeline, wrote or read
          checkpoints, and evaluated.
        - `arena_bytes_in_use`, `arena_bytes_kept`, `arena_bytes_returned`
          [bytes]: memory of tensors that other ranks of the host can read: in
          use, free and kept, and returned to the system.

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
    """Returns the ranks and sizes of this process and its job.

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
