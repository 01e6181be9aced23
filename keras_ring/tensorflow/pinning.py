"""`pin_gpu`: gives each rank a GPU of its host.

TensorFlow takes the first GPU and all of its memory, so the ranks of a host
would all take the same one.
"""

from __future__ import annotations

import collections
import re
import socket
from collections.abc import Sequence

import tensorflow as tf

from keras_ring import errors
from keras_ring.core import gpus, notices, objects, topology

# What ranks that share a GPU have of its memory together. The driver needs some
# of it for each process.
_SHARED = 0.9


def pin_gpu() -> int | None:
    """Makes one GPU of the host visible to this rank, and no other.

    The ranks of a host get different GPUs, as far as there are enough; else
    some share one, and each of these gets its part of the memory. A rank that
    has a GPU to itself takes memory as it needs it. A rank that sees one GPU,
    since the scheduler has given it that one (`CUDA_VISIBLE_DEVICES`, Slurm's
    `--gpus-per-task`), keeps it.

    All ranks must call it, after `kr.init()` and before TensorFlow has used a
    device; ranks without a GPU, too. On a host without one it does nothing.

    Returns:
        The number of the GPU in TensorFlow's list, or `None` if this rank sees
        none. In the program it is `"/GPU:0"` from now on.

    Raises:
        NotInitializedError: If `kr.init()` has not been called.
        ConfigurationError: If TensorFlow has opened its devices already.

    Example:
    ```python
    kr.init()
    kr.pin_gpu()
    ```
    """
    rank = topology.rank()
    seen = tf.config.list_physical_devices("GPU")
    identities = [_identity(device.name) for device in seen]
    of_ranks = objects.allgather_object(identities, name="pin_gpu")
    choice = choose(of_ranks)
    users = collections.Counter(
        of_ranks[other][index]
        for other, index in enumerate(choice)
        if index is not None
    )
    if users.total() > len(users):
        notices.say(
            f"{users.total()} ranks have {len(users)} GPUs: ranks that share "
            f"one get equal parts of {_SHARED:.0%} of its memory."
        )
    own = choice[rank]
    if own is None:
        return None
    try:
        tf.config.set_visible_devices(seen[own], "GPU")
        _limit_memory(seen[own], users[identities[own]])
    except RuntimeError as error:
        raise errors.ConfigurationError(
            f"kr.pin_gpu() on rank {rank} comes too late: "
            "TensorFlow has opened its GPUs already, with the first tensor or "
            "variable. Call it right after kr.init(), before both."
        ) from error
    return own


def choose(seen: Sequence[Sequence[str]]) -> list[int | None]:
    """Returns the index of the GPU of each rank in what this rank sees.

    Of those that a rank sees, it gets the first of those which the fewest ranks
    before it have got.

    Args:
        seen: For each rank, the identities of the GPUs that it sees.
    """
    users: dict[str, int] = {}
    choice: list[int | None] = []
    for own in seen:
        if not own:
            choice.append(None)
            continue
        index = min(range(len(own)), key=lambda i: users.get(own[i], 0))
        users[own[index]] = users.get(own[index], 0) + 1
        choice.append(index)
    return choice


def _identity(name: str) -> str:
    """Returns what all processes call a device of TensorFlow's."""
    gpu = _facts(name)
    return gpu.uuid if gpu else f"{socket.gethostname()}{name}"


def _facts(name: str) -> gpus.Gpu | None:
    ordinal = re.search(r"(\d+)$", name)
    for gpu in gpus.gpus():
        if ordinal and gpu.ordinal == int(ordinal.group(1)):
            return gpu
    return None


def _limit_memory(device: tf.config.PhysicalDevice, sharing: int) -> None:
    gpu = _facts(device.name)
    if sharing == 1 or gpu is None:
        tf.config.experimental.set_memory_growth(device, True)
        return
    megabytes = int(_SHARED * gpu.bytes / sharing) >> 20
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration(memory_limit=megabytes)]
    )
