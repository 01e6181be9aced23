"""The arguments of a reduction of a group of tensors, of any framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import ReduceOp


@dataclasses.dataclass(frozen=True)
class ReductionCall:
    """The arguments of a reduction of a group of tensors.

    Attributes:
        tensors: The tensors, at least one.
        op: A `kr.ReduceOp`.
        name: String, the name of the group, the same on all ranks.
        prescale_factor: Float, the factor of values before the reduction.
        postscale_factor: Float, the factor of values after the reduction.
        compression: The format on the wire. Defaults to `None`, for no other.
        process_set: A `kr.ProcessSet`, whose ranks reduce.
        commit_group: String, the commit group of an elastic job of whose steps
            the reduction is. Defaults to `""`, for none.
    """

    tensors: Sequence[Any]
    op: ReduceOp
    name: str
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    compression: Any = None
    process_set: ProcessSet = global_process_set
    commit_group: str = ""
