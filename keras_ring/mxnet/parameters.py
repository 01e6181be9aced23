"""Shares the parameters of models of MXNet between ranks."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from mxnet import gluon

from keras_ring.core import process_sets
from keras_ring.core.docstrings import described
from keras_ring.core.objects import require_member
from keras_ring.core.periodic_check import Rows
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.mxnet import gathers, tensors


@described
def broadcast_parameters(
    params: Mapping[str, Any],
    root_rank: int = 0,
    prefix: str | None = None,
    *,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the parameters of one, in place.

    A parameter of Gluon whose shape is not known yet is shared as soon as it is
    initialized, in the first forward pass.

    Args:
        params: Dictionary by name: the result of `block.collect_params()`, or
            of NDArrays, such as the first result of `module.get_params()`.
        root_rank: {{root_rank}} Defaults to `0`.
        prefix: String, what the names of the collectives begin with. Programs
            that share several models give each another one. Defaults to none.
        process_set: {{process_set}}

    Raises:
        TypeError: If `params` is no dictionary of parameters or NDArrays.
        ValueError: If `root_rank` is not a member.
        FailedPreconditionError: {{disagreement}}
        UnavailableError: {{lost}}

    Example:
    ```python
    net.initialize()
    kr.broadcast_parameters(net.collect_params(), root_rank=0)
    ```
    """
    require_member(root_rank, process_set)
    if not hasattr(params, "items"):
        raise TypeError(
            "`broadcast_parameters` takes a dictionary of parameters or "
            "NDArrays by name, such as `block.collect_params()`. Received: "
            f"{type(params).__name__}"
        )
    if process_sets.is_alone(process_set):
        return
    begin = f"{prefix or ''}parameter"
    handles = []
    # By their order: a rank that has made more blocks has other names.
    for index, (name, value) in enumerate(sorted(params.items())):
        called = f"{begin}/{index}"
        if isinstance(value, gluon.Parameter):
            if value._deferred_init:
                _share_once_initialized(value, root_rank, called, process_set)
                continue
            first, *others = value.list_data()
        elif tensors.is_ndarray(value):
            first, others = value, []
        else:
            raise TypeError(
                f"Parameter {name!r} is no `gluon.Parameter` and no NDArray. "
                f"Received: {type(value).__name__}"
            )
        tensors.check(first, "broadcast_parameters")
        handle = gathers.start_broadcast(
            [first], root_rank, called, process_set
        )
        handles.append((handle, others))
    for handle, others in handles:
        (shared,) = handle.wait()
        for other in others:
            other[:] = shared


def _share_once_initialized(
    parameter: gluon.Parameter,
    root_rank: int,
    name: str,
    process_set: ProcessSet,
) -> None:
    """Makes a parameter take the root's values when it gets its own."""
    initialize = parameter._init_impl

    def initialize_and_share(*args: Any, **kwargs: Any) -> None:
        parameter._init_impl = initialize
        initialize(*args, **kwargs)
        first, *others = parameter.list_data()
        gathers.start_broadcast([first], root_rank, name, process_set).wait()
        for other in others:
            other[:] = first

    parameter._init_impl = initialize_and_share


def rows_of(params: Iterable[gluon.Parameter]) -> Rows:
    """Returns the names of parameters with checksums of their values."""
    found = []
    for parameter in params:
        value = parameter.list_data()[0]
        checksum = zlib.crc32(tensors.dense(value).asnumpy().tobytes())
        found.append(
            (f"parameter '{parameter.name}'", f"of checksum {checksum}")
        )
    return found
