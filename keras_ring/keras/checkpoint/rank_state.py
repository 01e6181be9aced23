"""Moves the state of each single rank to rank 0's disk and back.

A checkpoint has one file for each rank. It holds, by index, the variables
whose values on this rank differ from those on rank 0; and, within an epoch,
the state of the metrics and accumulated gradients.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Variable
from keras_ring.core import arrays, topology
from keras_ring.core.objects import allgather_bytes
from keras_ring.core.rank_zero import array_of_rank_zero
from keras_ring.keras.agreement.fingerprints import digest
from keras_ring.keras.backends import backend
from keras_ring.keras.model import model_state

_OWNED = "owned-"
_RANDOM = "random-state"


def file_name(rank: int) -> str:
    """Returns the name of the file of a rank."""
    return f"rank-{rank}.npz"


@dataclasses.dataclass(frozen=True)
class Contents:
    """Contents of the file of this rank, as bytes.

    Attributes:
        owned: Values that differ from those on rank 0, by the index of the
            variable in the state.
        local: Values of `model_state.local_variables`, or an empty list.
        random: The state of the framework's own generator, or `None`.
    """

    owned: dict[int, npt.NDArray[Any]]
    local: list[npt.NDArray[Any]]
    random: npt.NDArray[Any] | None = None


def to_bytes(
    variables: Sequence[Variable],
    owned: Sequence[int],
    local: Sequence[npt.NDArray[Any]],
) -> bytes:
    """Returns the file of this rank. All ranks must call it.

    Args:
        variables: The variables of the state.
        owned: Indices of the variables that may differ between ranks.
        local: Arrays, the values of `model_state.local_variables`.
    """
    contents: dict[str, npt.NDArray[Any]] = model_state.numbered(local)
    if owned:
        digests = b"".join(digest(variables[index]) for index in owned)
        mine = np.frombuffer(digests, np.uint8).reshape(len(owned), -1)
        of_rank_0 = array_of_rank_zero(mine, "checkpoint/owned")
        for index, differs in zip(
            owned, (mine != of_rank_0).any(axis=1), strict=True
        ):
            if differs:
                (array,) = model_state.as_arrays([variables[index]])
                contents[f"{_OWNED}{index}"] = array
    if (random := backend.random_state()) is not None:
        contents[_RANDOM] = random
    file = io.BytesIO()
    model_state.write_arrays(contents, file)
    return file.getvalue()


def from_bytes(content: bytes) -> Contents | None:
    """Returns the contents that `to_bytes` has encoded, or `None` for none."""
    if not content:
        return None
    found = model_state.read_bytes(io.BytesIO(content))
    random = found.pop(_RANDOM, None)
    local = {k: v for k, v in found.items() if not k.startswith(_OWNED)}
    return Contents(
        {
            int(name.removeprefix(_OWNED)): array
            for name, array in found.items()
            if name.startswith(_OWNED)
        },
        model_state.in_order(local),
        random,
    )


def gather(content: bytes) -> list[bytes]:
    """Returns the bytes of all ranks, by rank, on rank 0; others get none.

    In an elastic job all get them, as each may become rank 0.
    """
    if topology.is_elastic():
        everywhere = allgather_bytes(content, "checkpoint/gather")
        return [each or b"" for each in everywhere]
    rows = [len(content), *[0] * (topology.size() - 1)]
    received, counts = _exchanged(content, rows, "checkpoint/gather")
    if topology.rank() != 0:
        return []
    ends = np.cumsum(counts)
    return [
        received[end - count : end].tobytes()
        for end, count in zip(ends, counts, strict=True)
    ]


def scatter(contents: Sequence[bytes]) -> bytes:
    """Sends each rank its bytes, and returns those of this rank.

    Args:
        contents: The bytes of all ranks on rank 0. Other ranks may pass
            anything.
    """
    if topology.rank() != 0:
        contents = [b""] * topology.size()
    rows = [len(content) for content in contents]
    received, _ = _exchanged(b"".join(contents), rows, "checkpoint/scatter")
    return bytes(received.tobytes())


def _exchanged(
    content: bytes, rows: Sequence[int], name: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    data = np.frombuffer(content, np.uint8)
    if topology.stays_alone():
        return data, np.array(rows)
    return arrays.alltoall(data, rows, name=name)
