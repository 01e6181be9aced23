"""How many elements a rank has, and the record of it."""

from __future__ import annotations

from typing import Any, Literal

from keras_ring.core import topology
from keras_ring.keras.agreement.data_parts import DataPart, remember

Uneven = Literal["pad", "drop", "error"]


def remembered(
    data: Any, what: str, mine: int | None = None, whole: int | None = None
) -> Any:
    """Records which part of the data this rank has, for the output of `fit`."""
    if not topology.stays_alone():
        remember(data, DataPart(what, mine, whole))
    return data


def even_length(length: int, uneven: Uneven) -> int:
    """Returns how many elements all ranks use together."""
    size = topology.size()
    rest = length % size
    if rest == 0:
        return length
    if uneven == "pad":
        return length + size - rest
    if uneven == "drop":
        return length - rest
    raise ValueError(
        f"{length} elements cannot be split evenly between {size} ranks. "
        'Leave out elements with `uneven="drop"`, or use some of them twice '
        'with `uneven="pad"`.'
    )
