"""Reduces lists of dense and sparse gradients by the same settings."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Container, Sequence
from typing import Any

from keras_ring._typing import Gradient, Source, Tensor, Variable
from keras_ring.core import process_sets, reduce_ops
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.core.wire_formats import WireFormat
from keras_ring.keras.agreement.shared_paths import shared_path
from keras_ring.keras.backends import backend


@dataclasses.dataclass(frozen=True)
class ReductionSettings:
    """Settings of the reduction of gradients by an optimizer or a tape.

    They are made from a user's arguments. All values are plain, so that an
    object can be pickled.

    Args:
        op: A `kr.ReduceOp`.
        compression: The number format on the wire.
        sparse_as_dense: Boolean, whether `tf.IndexedSlices` become tensors.
        gradient_predivide_factor: Float, by which gradients are divided
            before the sum. After it they are divided by the rest.
        groups: Number of groups, or the variables of each group, of which it
            keeps the paths.
        process_set: A `kr.ProcessSet`, whose ranks reduce.
        scale_local_gradients: Boolean, whether gradients that are not reduced
            are divided by the number of ranks if the others are averaged.
        backward_passes_per_step: Number of passes whose gradients an optimizer
            adds up before it reduces and uses them.
        average_aggregated_gradients: Boolean, whether their sum is divided by
            that number.
        weighted: Boolean, whether ranks are weighted by the divisors of their
            losses.
        whole_batch: Boolean, whether the ranks train on parts of one batch
            (`whole_batch`). Not an argument of users.
        elastic: Boolean, whether gradients are used only in steps that count
            for all ranks that an elastic job has left.

    Raises:
        ValueError: If an argument has no meaning, alone or with the others.
    """

    op: reduce_ops.ReduceOp = reduce_ops.Average
    compression: WireFormat = backend.Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    groups: int | Sequence[Sequence[Variable]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    weighted: bool = False
    whole_batch: bool = False
    elastic: bool = False

    def __post_init__(self) -> None:
        op, factor = self.op, self.gradient_predivide_factor
        passes = self.backward_passes_per_step
        if not isinstance(op, reduce_ops.ReduceOp):
            raise ValueError(
                "`op` must be one of `kr.Average`, `kr.Sum`, `kr.Min`, "
                "`kr.Max`, `kr.Product` and `kr.Adasum`. Received: "
                f"op={op!r}"
            )
        if not isinstance(self.compression, type(backend.Compression.none)):
            raise ValueError(
                "`compression` must be one of `kr.Compression.none`, "
                "`kr.Compression.fp16` and `kr.Compression.bf16`. Received: "
                f"compression={self.compression!r}"
            )
        if not factor > 0:
            raise ValueError(
                "`gradient_predivide_factor` must be above 0. Received: "
                f"gradient_predivide_factor={factor!r}"
            )
        if factor != 1.0 and op is not reduce_ops.Average:
            raise ValueError(
                "`gradient_predivide_factor` splits an average into a division "
                "before and one after the sum, so it needs `op=kr.Average`. "
                f"Received: op={op!r}, gradient_predivide_factor={factor!r}"
            )
        if self.weighted and op is not reduce_ops.Average:
            raise ValueError(
                "`weighted` makes a mean over the whole batch, so it needs "
                f"`op=kr.Average`. Received: op={op!r}, "
                f"weighted={self.weighted!r}"
            )
        if not isinstance(self.process_set, ProcessSet):
            raise ValueError(
                "`process_set` must be a `kr.ProcessSet`. Received: "
                f"process_set={self.process_set!r}"
            )
        is_count = isinstance(passes, int) and not isinstance(passes, bool)
        if not is_count or passes < 1:
            raise ValueError(
                "`backward_passes_per_step` must be an integer above 0. "
                f"Received: backward_passes_per_step={passes!r}"
            )
        # Converted to values that can be compared.
        for name, value in (
            ("sparse_as_dense", bool(self.sparse_as_dense)),
            ("gradient_predivide_factor", float(factor)),
            ("groups", _group_paths(self.groups)),
            ("scale_local_gradients", bool(self.scale_local_gradients)),
            (
                "average_aggregated_gradients",
                bool(self.average_aggregated_gradients),
            ),
            ("weighted", bool(self.weighted)),
            ("elastic", bool(self.elastic)),
        ):
            object.__setattr__(self, name, value)


def settings_that_differ(
    settings: ReductionSettings, other: ReductionSettings
) -> str:
    """Returns the settings in which `other` differs, as text."""
    return ", ".join(
        f"{field.name}={getattr(settings, field.name)!r}"
        for field in dataclasses.fields(settings)
        if getattr(settings, field.name) != getattr(other, field.name)
    )


def _group_paths(
    groups: int | Sequence[Sequence[Variable]] | None,
) -> int | tuple[tuple[str, ...], ...] | None:
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups < 1:
            raise ValueError(
                "`groups` must be a positive number of groups, or a list of "
                f"lists of variables. Received: groups={groups}"
            )
        return groups
    paths = []
    seen: set[str] = set()
    for group in groups if isinstance(groups, (list, tuple)) else [None]:
        if not isinstance(group, (list, tuple)) or not group:
            raise ValueError(
                "`groups` must be a positive number of groups, or a list of "
                f"non-empty lists of variables. Received: groups={groups!r}"
            )
        members = []
        for variable in group:
            path = backend.variable_path(variable)
            if path is None:
                raise ValueError(
                    "The lists in `groups` must hold variables. Received: "
                    f"{variable!r}"
                )
            if path in seen:
                raise ValueError(
                    f"Variable {path} is in `groups` more than once."
                )
            seen.add(path)
            members.append(path)
        paths.append(tuple(members))
    return tuple(paths)


def gradient_names(sources: Sequence[Source]) -> list[str]:
    """Returns the names under which gradients of `sources` are reduced.

    Args:
        sources: Variables and tensors, in an order that all ranks share. A
            tensor has no name that ranks share, so its position stands for it.

    Returns:
        A list of strings.
    """
    return backend.unique_names(
        "gradient",
        (
            shared_path(source) or f"source_{position}"
            for position, source in enumerate(sources)
        ),
    )


def reduce_gradients(
    gradients: Sequence[Gradient],
    sources: Sequence[Source],
    settings: ReductionSettings,
    names: Sequence[str] | None = None,
    local: Container[Source] = (),
    done: Container[int] = (),
    commit_group: str = "",
) -> list[Tensor]:
    """Reduces gradients over all ranks of the process set.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or `None`, one per source.
        sources: The variables or tensors that the gradients belong to.
        settings: A `ReductionSettings`.
        names: One name per source. Defaults to `gradient_names(sources)`.
        local: The sources whose gradients stay with their rank.
        done: The indexes of gradients that are reduced already.
        commit_group: String, the commit group of an elastic job of whose steps
            these are. Defaults to `""`, for none.

    Returns:
        A list like `gradients`. If there is one rank, or if this rank is not
        a member of the process set, it holds the very same objects, and
        nothing is added to the graph.
    """
    reduced = list(gradients)
    if process_sets.shares_nothing(settings.process_set):
        return reduced
    if names is None:
        names = gradient_names(sources)
    overwritten = []
    dense = []
    for i, gradient in enumerate(reduced):
        if gradient is None or i in done:
            continue
        if sources[i] in local:
            if (
                settings.scale_local_gradients
                and settings.op is reduce_ops.Average
            ):
                # The average is that of the losses: this is a part of it.
                reduced[i] = backend.part_of_mean(
                    gradient, settings.process_set
                )
            continue
        if backend.is_sparse(gradient):
            # Under XLA, sizes of tensors must not depend on values.
            if not (
                settings.sparse_as_dense
                or settings.elastic
                or backend.is_compiled()
            ):
                reduced[i] = backend.allreduce_sparse(
                    gradient,
                    settings.op,
                    name=names[i],
                    compression=settings.compression,
                    process_set=settings.process_set,
                    # One process has duplicates, too, and Keras squares each.
                    keeps_duplicates=settings.whole_batch,
                )
                continue
            reduced[i] = backend.dense(gradient)
        # Keras returns new values of float8 scales in place of gradients, and
        # combines those of several steps by their maximum. Those of several
        # ranks are combined in the same way.
        if getattr(sources[i], "overwrite_with_gradient", False):
            overwritten.append(i)
        else:
            dense.append(i)

    factor = settings.gradient_predivide_factor
    buckets = buckets_of(dense, sources, settings)
    calls = [
        _allreduce_call(
            reduced,
            bucket,
            names,
            op=settings.op,
            prescale_factor=1.0 / factor,
            postscale_factor=factor,
            compression=settings.compression,
            process_set=settings.process_set,
            commit_group=commit_group,
        )
        for bucket in buckets
    ]
    for i in overwritten:
        buckets.append([i])
        calls.append(
            _allreduce_call(
                reduced,
                [i],
                names,
                op=reduce_ops.Max,
                process_set=settings.process_set,
                commit_group=commit_group,
            )
        )
    if calls:
        results = backend.allreduce_calls(calls)
        for bucket, tensors in zip(buckets, results, strict=True):
            for i, tensor in zip(bucket, tensors, strict=True):
                reduced[i] = tensor
    return reduced


# From this number of gradients on, gradients of at most `_SMALL_BYTES` share
# ops: docs/performance.md, "Models of many small variables".
_MANY = 256
_SMALL_BYTES = 256 << 10
_PART_TENSORS = 32
_PART_BYTES = 1 << 20


def buckets_of(
    positions: list[int], sources: Sequence[Source], settings: ReductionSettings
) -> list[list[int]]:
    """Returns which gradients are submitted as one atomic group.

    Args:
        positions: The indexes of the gradients among the sources.
        sources: The variables or tensors that gradients belong to.
        settings: A `ReductionSettings`.
    """
    groups = settings.groups
    if not positions:
        return []
    if isinstance(groups, int):
        count = min(groups, len(positions))
        bounds = [len(positions) * i // count for i in range(count + 1)]
        return [
            positions[start:end] for start, end in itertools.pairwise(bounds)
        ]
    buckets = []
    rest = positions
    for paths in groups or ():
        bucket = [i for i in rest if backend.variable_path(sources[i]) in paths]
        rest = [i for i in rest if i not in bucket]
        buckets.append(bucket)
    if backend.waits_for_each():
        # One op for all gradients costs one round trip instead of many.
        buckets.append(rest)
    else:
        buckets.extend(_small_ones_together(rest, sources, settings))
    return [bucket for bucket in buckets if bucket]


def _small_ones_together(
    positions: list[int], sources: Sequence[Source], settings: ReductionSettings
) -> list[list[int]]:
    """Divides the gradients of a graph into groups, mostly of one gradient.

    Each op has a fixed cost, which is higher than that of the sum of a small
    tensor. In a model of many small tensors it is most of the cost of
    reductions, so there neighbours share an op. The groups are small, so that
    their members become ready at about the same time.

    All sources are divided, not only those with gradients: if one rank lacks a
    gradient, only one group changes, and not all that follow.
    """
    if len(sources) < _MANY or settings.op is reduce_ops.Adasum:
        return [[i] for i in positions]
    parts: dict[int, list[int]] = {}
    wanted = set(positions)
    start = end = room = 0
    for i, source in enumerate(sources):
        is_variable = backend.variable_path(source) is not None
        size = backend.num_bytes(source) if is_variable else None
        part = i
        if size is not None and size <= _SMALL_BYTES:
            if size > room or i >= end:
                start, end, room = i, i + _PART_TENSORS, _PART_BYTES
            room -= size
            part = start
        if i in wanted:
            parts.setdefault(part, []).append(i)
    return list(parts.values())


def _allreduce_call(
    gradients: Sequence[Gradient],
    bucket: list[int],
    names: Sequence[str],
    **arguments: Any,
) -> ReductionCall:
    name = names[bucket[0]]
    if len(bucket) > 1:
        name += f"+{len(bucket) - 1}"
    return ReductionCall([gradients[i] for i in bucket], name=name, **arguments)


def agree_on_overflow(
    gradients: list[Gradient], sources: list[Source], process_set: ProcessSet
) -> list[Gradient]:
    """Makes an overflow on one rank an overflow on all ranks.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or `None`, one per source.
        sources: The variables or tensors that the gradients belong to.
        process_set: A `kr.ProcessSet`, whose ranks agree.

    Returns:
        A list like `gradients`. If any gradient of any rank was not finite, one
        of them is not a number.
    """
    present = [i for i, g in enumerate(gradients) if g is not None]
    if not present or process_sets.shares_nothing(process_set):
        return gradients
    (name,) = backend.unique_names(
        "finite", [shared_path(sources[0]) or "source_0"]
    )
    everywhere = backend.allreduce(
        backend.are_finite(gradients[i] for i in present),
        reduce_ops.Min,
        name=name,
        process_set=process_set,
    )
    first = present[0]
    agreed = list(gradients)
    agreed[first] = backend.map_gradient(
        lambda values: backend.or_nan(values, everywhere),
        gradients[first],
    )
    return agreed
