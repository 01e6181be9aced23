"""Gives each rank a GPU of its host, without the program's knowledge.

A program for one process takes the first GPU that it sees, often by its number
and with settings of its own. So each rank is to see one, by
`CUDA_VISIBLE_DEVICES`, which the driver reads when it is opened; TensorFlow
opens it when it is first asked for its devices.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from keras_ring.core import notices, topology
from keras_ring.protocol import nvidia

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"


def share() -> None:
    """Gives this rank its GPU, if this host has a GPU and several ranks."""
    ranks = topology.local_size()
    seen = _seen(os.environ)
    variables = variables_of(topology.local_rank(), ranks, seen)
    if not variables:
        return
    for name, value in variables.items():
        # Whether memory grows may be the user's choice.
        if name == _VISIBLE or name not in os.environ:
            os.environ[name] = value
    text = f"each rank of a host sees one of its GPUs ({_VISIBLE})"
    if _GROWTH in variables:
        gpus = notices.count(len(seen), "GPU")
        growth = os.environ[_GROWTH]
        text += f"; {ranks} ranks share {gpus} ({_GROWTH}={growth})"
    notices.say(text)


def variables_of(
    local_rank: int, local_size: int, seen: list[str]
) -> dict[str, str]:
    """Returns the variables of one rank of a host; `{}` to change nothing.

    Args:
        local_rank: Integer, the rank among those of its host.
        local_size: Integer, their number.
        seen: List of the GPUs that the host's ranks see, by the driver's names.
    """
    if local_size == 1 or not seen:
        return {}
    variables = {_VISIBLE: seen[local_rank % len(seen)]}
    if local_size > len(seen):
        variables[_GROWTH] = "true"
    return variables


def _seen(environment: Mapping[str, str]) -> list[str]:
    """Returns the GPUs that this process would see.

    One alone may be what the scheduler has given to this rank, and the other
    ranks may have others: that is kept, as it is.
    """
    names = nvidia.visible(environment)
    return names if len(names) > 1 or _VISIBLE not in environment else []
