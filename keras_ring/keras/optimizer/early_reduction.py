"""Reduces gradients in the backward pass, where the framework computes eagerly.

In a graph, the reduction of a gradient begins as soon as it is ready. PyTorch
gives an optimizer all gradients at once, when the backward pass is over. So
from the first update on, when the ranks have agreed on names, hooks of the
variables reduce gradients while further ones are computed. The optimizer skips
those: they are recognized by identity. A gradient that the program has replaced
is averaged again, which changes nothing if it is the same on all ranks.

A rank may lack a gradient that others have, because its data take another way
through the model. It gets zeros for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Sequence

from keras_ring._typing import Gradient, Optimizer, Source
from keras_ring.core import reduce_ops, topology
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.keras.agreement.shared_paths import shared_path
from keras_ring.keras.backends import backend
from keras_ring.keras.backends.interface import EarlyReducer
from keras_ring.keras.optimizer import local_updates
from keras_ring.keras.optimizer.reduction import (
    ReductionSettings,
    buckets_of,
    gradient_names,
)

# By the identity of a variable: the optimizer that reduces its gradients early.
_owners: dict[int, weakref.ref[Optimizer]] = {}
# `None` for an optimizer whose gradients cannot be reduced early.
_reducers: weakref.WeakKeyDictionary[Optimizer, EarlyReducer | None] = (
    weakref.WeakKeyDictionary()
)


def reduced_by(
    optimizer: Optimizer,
    gradients: Sequence[Gradient],
    sources: Sequence[Source],
) -> set[int]:
    """Returns the indexes of the gradients that are reduced already.

    Args:
        optimizer: The optimizer that is about to reduce them.
        gradients: Tensors or `None`, one per source.
        sources: The variables that the gradients belong to.
    """
    reducer = _reducers.get(optimizer)
    if reducer is None:
        return set()
    pairs = enumerate(zip(gradients, sources, strict=True))
    return {
        index
        for index, (gradient, source) in pairs
        if gradient is not None and reducer.has_reduced(gradient, source)
    }


def begun(
    optimizer: Optimizer,
    gradients: Sequence[Gradient],
    sources: Sequence[Source],
    settings: ReductionSettings,
    local: Container[Source],
) -> list[Gradient]:
    """Begins to reduce early, with the gradients of the first update.

    Args:
        optimizer: The optimizer that is about to reduce gradients.
        gradients: Tensors or `None`, one per source.
        sources: The variables that the gradients belong to.
        settings: The `ReductionSettings` of the optimizer.
        local: The variables whose gradients stay with their rank.

    Returns:
        The gradients, with zeros for those that other ranks alone have.
    """
    found = list(gradients)
    # In a trace, names that are made here would not be those of reductions.
    if backend.traces_steps() or optimizer in _reducers:
        return found
    reducer = _reducers[optimizer] = _begun(sources, settings, local)
    if reducer is None:
        return found
    _take_over(optimizer, sources)
    weakref.finalize(optimizer, reducer.close)
    return reducer.completed(found, sources)


def _take_over(optimizer: Optimizer, sources: Sequence[Source]) -> None:
    """Ends the early reductions of others that have trained these variables.

    They reduce later from then on, if they are used once more.
    """
    for source in sources:
        key = id(backend.storage(source))
        owner = _owners[key]() if key in _owners else None
        if owner is not None and (former := _reducers.get(owner)) is not None:
            former.close()
            _reducers[owner] = None
        _owners[key] = weakref.ref(optimizer)


def end_step(optimizer: Optimizer) -> None:
    """Ends the step of an optimizer that has made an update."""
    if (reducer := _reducers.get(optimizer)) is not None:
        reducer.end_step()


def _begun(
    sources: Sequence[Source],
    settings: ReductionSettings,
    local: Container[Source],
) -> EarlyReducer | None:
    reduced = [source for source in sources if source not in local]
    if (
        # To average what is averaged already changes nothing.
        settings.op is not reduce_ops.Average
        or settings.whole_batch
        or not reduced
        or any(
            getattr(source, "overwrite_with_gradient", False)
            for source in reduced
        )
    ):
        return None
    names = gradient_names(sources)
    indexes = [i for i, source in enumerate(sources) if source not in local]
    factor = settings.gradient_predivide_factor
    return backend.early_reducer(
        f"early/{shared_path(reduced[0])}",
        [
            ([names[i] for i in bucket], [sources[i] for i in bucket])
            for bucket in buckets_of(indexes, sources, settings)
        ],
        ReductionCall(
            [],
            settings.op,
            "",
            prescale_factor=1.0 / factor,
            postscale_factor=factor,
            compression=settings.compression,
            process_set=settings.process_set,
        ),
        sparse_as_dense=settings.sparse_as_dense,
        leaves_out=_is_of_one_rank,
    )


def _is_of_one_rank() -> bool:
    """Returns whether the present backward pass is one of this rank alone."""
    return (
        local_updates.are_allowed_in_backward() or not topology.is_initialized()
    )
