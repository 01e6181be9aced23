"""The primitive of JAX that stands for every collective of arrays.

It runs at once outside of compiled functions, is lowered to two calls in them
(`calls`), and has derivatives and a rule for `jax.vmap`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from keras_ring.core import operations, process_sets, topology
from keras_ring.core.operations import BY_ROWS, Kind
from keras_ring.core.reduce_ops import LINEAR, Adasum, ReduceOp
from keras_ring.jax import calls, ordering

_Arrays = list[Any]

collective_p = Primitive("keras_ring_collective")
collective_p.multiple_results = True


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of a collective beside its arrays.

    Attributes:
        kind: A `Kind`.
        name: String, the same on all ranks.
        process_set: Integer, the number of the process set.
        op: A `ReduceOp`, of a reduction.
        root: Integer, the rank that a broadcast is from.
        prescale: Float, the factor of values before a reduction.
        postscale: Float, the factor of values after it.
        compression: Integer, the native number of the format on the wire.
        rows: Tuple of integers, the rows of each result, of kinds by rows.
    """

    kind: Kind
    name: str
    process_set: int = 0
    op: ReduceOp = ReduceOp.Sum
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    compression: int = 0
    rows: tuple[int, ...] = ()


def bind(call: Call, arrays: Sequence[Any]) -> _Arrays:
    """Returns the results of a collective of arrays."""
    return list(collective_p.bind(*arrays, call=call))


@collective_p.def_impl
def _run(*arrays: Any, call: Call) -> _Arrays:
    settings: dict[str, Any] = {}
    if call.kind in (Kind.allreduce, Kind.reducescatter):
        settings = {
            "reduce_op": int(call.op),
            "prescale": call.prescale,
            "postscale": call.postscale,
            "compression": call.compression,
        }
    if call.kind is Kind.broadcast:
        settings = {"root": call.root}
    results = operations.run(
        call.kind,
        call.name,
        [np.asarray(array) for array in arrays],
        call.process_set,
        **settings,
    )
    # An alltoall has one more, the rows from each rank.
    return [jnp.asarray(each) for each in results[: len(arrays)]]


@collective_p.def_effectful_abstract_eval
def _shapes(*avals: Any, call: Call) -> tuple[_Arrays, set[Any]]:
    shapes = [each.shape for each in avals]
    if call.kind in BY_ROWS:
        shapes = [
            (rows, *shape[1:])
            for shape, rows in zip(shapes, call.rows, strict=True)
        ]
    results = [
        jax.core.ShapedArray(shape, each.dtype)
        for each, shape in zip(avals, shapes, strict=True)
    ]
    return results, {ordering.EFFECT}


def _lower(context: Any, *operands: Any, call: Call) -> _Arrays:
    return calls.lower(
        context,
        *operands,
        attributes={
            "name": call.name,
            "process_set": np.int64(call.process_set),
            "kind": np.int32(call.kind),
            "reduce_op": np.int32(call.op),
            "root": np.int32(call.root),
            "prescale": _bits(call.prescale),
            "postscale": _bits(call.postscale),
            "compression": np.int32(call.compression),
        },
    )


mlir.register_lowering(collective_p, _lower, platform="cpu")


def _bits(number: float) -> np.int64:
    return np.int64(struct.unpack("<q", struct.pack("<d", number))[0])


# --- Derivatives: those of the sum of the ranks' losses ---


def _require_linear(call: Call) -> None:
    is_reduction = call.kind in (Kind.allreduce, Kind.reducescatter)
    if is_reduction and call.op not in LINEAR:
        raise NotImplementedError(
            f"{call.kind.name} {call.name!r} with `{call.op.name}` has no "
            "derivative in JAX. Those with Sum and Average have."
        )


def _tangents(
    primals: _Arrays, tangents: _Arrays, call: Call
) -> tuple[_Arrays, _Arrays]:
    results = bind(call, primals)
    _require_linear(call)
    # Which of them are zero follows from the program, so all ranks agree.
    moving = [
        index
        for index, tangent in enumerate(tangents)
        if not isinstance(tangent, ad.Zero)
    ]
    of_results = [
        ad.Zero(jax.typeof(each).to_tangent_aval()) for each in results
    ]
    if moving:
        sent = [tangents[index] for index in moving]
        rows = tuple(call.rows[index] for index in moving if call.rows)
        of_tangents = dataclasses.replace(
            call, name=f"{call.name}/tangent", rows=rows
        )
        found = bind(of_tangents, sent)
        for index, each in zip(moving, found, strict=True):
            of_results[index] = each
    return results, of_results


ad.primitive_jvps[collective_p] = lambda primals, tangents, call: _tangents(
    primals, tangents, call
)


def _transpose(cotangents: _Arrays, *arrays: Any, call: Call) -> _Arrays:
    sent = [ad.instantiate_zeros(each) for each in cotangents]
    inputs = [each.aval for each in arrays]
    name = f"{call.name}/gradient"
    members = process_sets.by_id(call.process_set).size()
    if call.kind is Kind.allreduce:
        return bind(dataclasses.replace(call, name=name), sent)
    if call.kind is Kind.reducescatter:
        share = 1.0 / members if call.op is ReduceOp.Average else 1.0
        factor = share * call.prescale * call.postscale
        back = Call(
            Kind.allgather,
            name,
            call.process_set,
            rows=tuple(each.shape[0] for each in inputs),
        )
        gathered = bind(back, sent)
        return [each * jnp.asarray(factor, each.dtype) for each in gathered]
    if call.kind is Kind.allgather:
        back = Call(
            Kind.reducescatter,
            name,
            call.process_set,
            rows=tuple(each.shape[0] for each in inputs),
        )
        return bind(back, sent)
    if call.kind is Kind.alltoall:
        return bind(dataclasses.replace(call, name=name), sent)
    # A broadcast: what all ranks have made of the root's values.
    back = Call(Kind.allreduce, name, call.process_set)
    summed = bind(back, sent)
    is_root = topology.rank() == call.root
    return summed if is_root else [jnp.zeros_like(each) for each in summed]


ad.primitive_transposes[collective_p] = _transpose


# --- vmap ---


def _batched(
    arrays: _Arrays, dimensions: Sequence[Any], *, call: Call
) -> tuple[_Arrays, list[int]]:
    if call.kind is Kind.allreduce and call.op is Adasum:
        raise NotImplementedError(
            f"Adasum {call.name!r} is of whole tensors, and `jax.vmap` gives "
            "it parts of them."
        )
    (size,) = {
        array.shape[dimension]
        for array, dimension in zip(arrays, dimensions, strict=True)
        if dimension is not None
    }
    # Rows stay the first dimension of kinds by rows.
    to = 1 if call.kind in BY_ROWS else 0
    moved = [
        jnp.broadcast_to(
            jnp.expand_dims(array, to),
            (*array.shape[:to], size, *array.shape[to:]),
        )
        if dimension is None
        else jnp.moveaxis(array, dimension, to)
        for array, dimension in zip(arrays, dimensions, strict=True)
    ]
    return bind(call, moved), [to] * len(moved)


batching.primitive_batchers[collective_p] = _batched
