"""The gradients of the collectives.

They are the derivatives of the sum of the ranks' losses. So the gradient of a
collective is a collective, too: the values of a rank went to other ranks, and
their gradients come back from there. Every rank must compute it.

docs/collectives.md has the formulas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_ring._typing import Gradient, Operation, Tensor
from keras_ring.core import process_sets, reduce_ops
from keras_ring.core.process_sets import ProcessSet
from keras_ring.core.reduction_call import ReductionCall
from keras_ring.tensorflow import (
    adasum_derivative,
    gathers,
    op_attributes,
    reduction_calls,
    reductions,
    topology_ops,
    xla,
)
from keras_ring.tensorflow.compression import Compression, Compressor


def _name_of(op: Operation) -> str:
    return f"{op.get_attr('tensor_name').decode()}/gradient"


def _set_of(op: Operation) -> ProcessSet:
    """Returns the process set of an op, which its gradient uses, too."""
    return process_sets.by_id(op.get_attr("process_set_id"))


def _of_members(
    op: Operation,
    gradients: Sequence[Gradient],
    compute: Callable[[list[int], list[Tensor]], list[Tensor]],
) -> list[Gradient]:
    """Computes the gradients of the members of a group that have one.

    Args:
        op: The operation, whose inputs are the members.
        gradients: The gradients of its outputs.
        compute: Function of the positions of these members and the gradients
            of their outputs that returns the gradients of their inputs.

    Returns:
        The gradients of all members; `None` for integers and booleans.
    """
    members = [
        i
        for i, tensor in enumerate(op.inputs)
        if tensor.dtype.is_floating or tensor.dtype.is_complex
    ]
    results: list[Gradient] = [None] * len(op.inputs)
    if members:
        known = [
            tf.zeros_like(op.outputs[i])
            if gradients[i] is None
            # A lookup in the result has `tf.IndexedSlices` as its gradient.
            else tf.convert_to_tensor(gradients[i])
            for i in members
        ]
        for i, result in zip(members, compute(members, known), strict=True):
            results[i] = result
    return results


def _sums(
    tensors: Sequence[Tensor], name: str, process_set: ProcessSet
) -> list[Tensor]:
    """Returns sums over the ranks, also of complex numbers."""
    parts = [
        tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], -1)
        if tensor.dtype.is_complex
        else tensor
        for tensor in tensors
    ]
    sums = reductions.grouped_allreduce(
        parts, reduce_ops.Sum, name=name, process_set=process_set
    )
    return [
        tf.complex(total[..., 0], total[..., 1])
        if tensor.dtype.is_complex
        else total
        for tensor, total in zip(tensors, sums, strict=True)
    ]


def _as_reduced(op: Operation, members: Sequence[int]) -> list[Tensor]:
    """Returns the inputs of a reduction, scaled and rounded as in it."""
    compression = op_attributes.compression_of(op)
    prescale, _ = op_attributes.factors_of(op)
    inputs = [op.inputs[i] for i in members]
    if prescale != 1.0:
        inputs = [x * tf.constant(prescale, x.dtype) for x in inputs]
    return [
        compression.decompress(*compression.compress(tensor))
        for tensor in inputs
    ]


def _rows_of_everyone(
    rows: Tensor,
    place: Callable[[], tuple[int, int]],
    name: str,
    process_set: ProcessSet,
    compression: Compressor = Compression.none,
) -> Tensor:
    """Concatenates the ranks' rows; under XLA, by a sum of padded rows.

    Args:
        rows: A tensor, the rows of this rank.
        place: Function that returns the index of the first of them, and the
            number of all rows; it is called under XLA.
        name: String, the name of the collective.
        process_set: A `kr.ProcessSet`, whose ranks have rows.
        compression: The format of the rows on the wire.
    """
    if not xla.is_tracing():
        sent, dtype = compression.compress(rows)
        gathered = gathers.allgather(sent, name=name, process_set=process_set)
        return compression.decompress(gathered, dtype)
    own = rows.shape[0]
    begin, total = place()
    around = [[begin, total - begin - own]] + [[0, 0]] * (rows.shape.rank - 1)
    return reductions.allreduce(
        tf.pad(rows, around),
        reduce_ops.Sum,
        name=name,
        compression=compression,
        process_set=process_set,
    )


def _of_everyone(tensor: Tensor, name: str, process_set: ProcessSet) -> Tensor:
    """Returns the ranks' tensors, stacked along a new first dimension."""
    everyone = _rows_of_everyone(
        tensor[tf.newaxis],
        lambda: (
            topology_ops.rank_in_graph(process_set),
            topology_ops.size_in_graph(process_set),
        ),
        name,
        process_set,
    )
    size = topology_ops.static_size(process_set)
    return tf.ensure_shape(everyone, [size, *everyone.shape[1:]])


def _product_of_others(
    tensor: Tensor, name: str, process_set: ProcessSet
) -> Tensor:
    """Returns the product of other ranks' tensors, also if they have zeros."""
    everyone = _of_everyone(tensor, f"{name}/factors", process_set)
    rank = topology_ops.rank_in_graph(process_set, [everyone])
    before = tf.math.cumprod(everyone, exclusive=True)
    after = tf.math.cumprod(everyone, exclusive=True, reverse=True)
    return (before * after)[rank]


def _through_reduction(
    reduce_op: reduce_ops.ReduceOp,
    gradients: Sequence[Tensor],
    inputs: Sequence[Tensor],
    outputs: Callable[[], Sequence[Tensor]],
    name: str,
    process_set: ProcessSet,
) -> list[Tensor]:
    """Returns the gradients of a Min, Max, Product or Adasum.

    Args:
        reduce_op: The `ReduceOp`.
        gradients: The gradients of the results, summed over the ranks.
        inputs: The tensors of this rank.
        outputs: Function that returns the results.
        name: String, from which the names of collectives are made.
        process_set: The process set of the reduction.

    Returns:
        The gradients of the inputs.
    """
    if reduce_op is reduce_ops.Product:
        return [
            gradient * _product_of_others(tensor, f"{name}/{i}", process_set)
            for i, (gradient, tensor) in enumerate(
                zip(gradients, inputs, strict=True)
            )
        ]
    if reduce_op is reduce_ops.Adasum:
        return [
            _through_adasum(
                gradient, tensor, f"{name}/{i}/vectors", process_set
            )
            for i, (gradient, tensor) in enumerate(
                zip(gradients, inputs, strict=True)
            )
        ]
    # Min, Max: the ranks that hold the extremum get equal parts.
    holds = [
        tf.cast(tf.equal(tensor, extremum), tensor.dtype)
        for tensor, extremum in zip(inputs, outputs(), strict=True)
    ]
    holders = reductions.grouped_allreduce(
        holds, reduce_ops.Sum, name=f"{name}/holders", process_set=process_set
    )
    return [
        gradient * hold / count
        for gradient, hold, count in zip(gradients, holds, holders, strict=True)
    ]


def _through_adasum(
    gradient: Tensor, tensor: Tensor, name: str, process_set: ProcessSet
) -> Tensor:
    """Returns the gradient of an Adasum by the tensor of this rank."""
    everyone = _of_everyone(tensor, name, process_set)
    rank = topology_ops.rank_in_graph(process_set, [everyone])
    if everyone.shape[0] is None:
        # If more join than there are now, the step ends in an error.
        everyone = adasum_derivative.padded(everyone, process_set.size())
    return adasum_derivative.gradient_of_own(everyone, rank, gradient)


@tf.RegisterGradient("KerasRingAllreduce")  # type: ignore[untyped-decorator]
def _allreduce_gradient(op: Operation, *gradients: Gradient) -> list[Gradient]:
    reduce_op = op_attributes.reduce_op_of(op)
    name = _name_of(op)
    compression = op_attributes.compression_of(op)
    process_set = _set_of(op)

    def compute(members: list[int], known: list[Tensor]) -> list[Tensor]:
        if reduce_op in reduce_ops.LINEAR:
            # Every rank's output depends on every rank's input with the same
            # factor.
            call = ReductionCall(
                known,
                reduce_op,
                name,
                *op_attributes.factors_of(op),
                compression,
                process_set,
            )
            return reduction_calls.allreduce_calls([call])[0]
        # The factors are 1, except for Adasum, whose derivative does not
        # depend on the prescale factor.
        prescale, postscale = op_attributes.factors_of(op)
        total = reductions.grouped_allreduce(
            known,
            reduce_ops.Sum,
            name=name,
            postscale_factor=prescale * postscale,
            compression=compression,
            process_set=process_set,
        )
        return _through_reduction(
            reduce_op,
            total,
            _as_reduced(op, members),
            lambda: [op.outputs[i] for i in members],
            name,
            process_set,
        )

    return _of_members(op, gradients, compute)


@tf.RegisterGradient("KerasRingReducescatter")  # type: ignore[untyped-decorator]
def _reducescatter_gradient(
    op: Operation, *gradients: Gradient
) -> list[Gradient]:
    reduce_op = op_attributes.reduce_op_of(op)
    name = _name_of(op)
    compression = op_attributes.compression_of(op)
    process_set = _set_of(op)

    def compute(members: list[int], known: list[Tensor]) -> list[Tensor]:
        inputs = _as_reduced(op, members)

        def whole(parts: Sequence[Tensor], name: str) -> list[Tensor]:
            """Returns the rows of all ranks."""
            if not xla.is_tracing():
                pairs = [compression.compress(part) for part in parts]
                gathered = gathers.grouped_allgather(
                    [sent for sent, _ in pairs],
                    name=name,
                    process_set=process_set,
                )
                return [
                    compression.decompress(rows, dtype)
                    for rows, (_, dtype) in zip(gathered, pairs, strict=True)
                ]
            return [
                _rows_of_everyone(
                    part,
                    functools.partial(
                        _place_of_rows, tensor.shape[0], process_set
                    ),
                    f"{name}/{i}",
                    process_set,
                    compression,
                )
                for i, (part, tensor) in enumerate(
                    zip(parts, inputs, strict=True)
                )
            ]

        total = whole(known, name)
        if reduce_op not in reduce_ops.LINEAR:
            return _through_reduction(
                reduce_op,
                total,
                inputs,
                lambda: whole(
                    [op.outputs[i] for i in members], f"{name}/whole"
                ),
                name,
                process_set,
            )
        prescale, postscale = op_attributes.factors_of(op)
        factor = prescale * postscale
        if reduce_op is reduce_ops.Average:
            factor = topology_ops.mean_factor(process_set, factor, total)
        return [
            gradient * reduction_calls.as_type(factor, gradient.dtype)
            for gradient in total
        ]

    return _of_members(op, gradients, compute)


def _place_of_rows(rows: int, process_set: ProcessSet) -> tuple[int, int]:
    """Returns which row `reducescatter` gives to this rank first, and `rows`.

    It is for XLA only, which compiles for fixed shapes.
    """
    size = topology_ops.size_in_graph(process_set)
    before = sum(
        reduction_calls.scattered_rows(rows, index, size)
        for index in range(topology_ops.rank_in_graph(process_set))
    )
    return before, rows


@tf.RegisterGradient("KerasRingAllgather")  # type: ignore[untyped-decorator]
def _allgather_gradient(op: Operation, *gradients: Gradient) -> list[Gradient]:
    name = _name_of(op)
    process_set = _set_of(op)

    def compute(members: list[int], known: list[Tensor]) -> list[Tensor]:
        own = tf.stack(
            [tf.shape(op.inputs[i], out_type=tf.int64)[0] for i in members]
        )
        by_rank = gathers.allgather(
            own[tf.newaxis], name=f"{name}/rows", process_set=process_set
        )
        return [
            _sum_of_parts(gradient, by_rank[:, i], f"{name}/{i}", process_set)
            for i, gradient in enumerate(known)
        ]

    return _of_members(op, gradients, compute)


def _sum_of_parts(
    tensor: Tensor, rows: Tensor, name: str, process_set: ProcessSet
) -> Tensor:
    """Sums rows over the ranks; each rank gets its own rows, of any number.

    Each rank receives its rows of all others, and sums them in rank order.
    """
    # As many rows from each: the sizes of this exchange, whoever is lost later.
    parts, received = gathers.alltoall(
        tensor, rows, name=name, process_set=process_set
    )
    shape = tf.concat(
        [
            tf.shape(received, out_type=tf.int64),
            received[:1],
            tf.shape(tensor, out_type=tf.int64)[1:],
        ],
        0,
    )
    parts = tf.reshape(parts, shape)
    # Rounded only once, as in collectives.
    wide = parts.dtype.is_floating and parts.dtype.size < 4
    total = tf.reduce_sum(tf.cast(parts, tf.float32) if wide else parts, 0)
    return tf.cast(total, tensor.dtype)


@tf.RegisterGradient("KerasRingAlltoall")  # type: ignore[untyped-decorator]
def _alltoall_gradient(
    op: Operation, gradient: Tensor, _: Gradient
) -> list[Gradient]:
    back, _ = gathers.alltoall(
        gradient, op.outputs[1], name=_name_of(op), process_set=_set_of(op)
    )
    return [back, None]


@tf.RegisterGradient("KerasRingBroadcast")  # type: ignore[untyped-decorator]
def _broadcast_gradient(op: Operation, *gradients: Gradient) -> list[Gradient]:
    def compute(_: list[int], known: list[Tensor]) -> list[Tensor]:
        process_set = _set_of(op)
        total = _sums(known, _name_of(op), process_set)
        root_rank = op.get_attr("root_rank")
        index = topology_ops.rank_in_graph(process_set, total)
        if not isinstance(index, int):
            is_root = tf.equal(tf.gather(process_set.ranks, index), root_rank)
            return [
                tf.where(is_root, gradient, tf.zeros_like(gradient))
                for gradient in total
            ]
        if process_set.ranks[index] == root_rank:
            return total
        # The root waits for this rank's part, so it must not be pruned.
        with tf.control_dependencies(total):
            return [tf.identity(tf.zeros_like(gradient)) for gradient in total]

    return _of_members(op, gradients, compute)


_UNDER_XLA = {
    op_attributes.Kind.allreduce: _allreduce_gradient,
    op_attributes.Kind.broadcast: _broadcast_gradient,
    op_attributes.Kind.reducescatter: _reducescatter_gradient,
}


@tf.RegisterGradient("KerasRingXlaDone")  # type: ignore[untyped-decorator]
def _xla_done_gradient(op: Operation, *gradients: Gradient) -> list[Gradient]:
    results: list[Gradient] = [None] * op.get_attr("N")
    with xla.compiling():
        for collective, its_gradients in xla.started(op, gradients):
            gradient = _UNDER_XLA[
                op_attributes.Kind(collective.get_attr("kind"))
            ]
            results += gradient(collective, *its_gradients)
    return results
