"""Collectives of arrays of JAX, and of pytrees of them.

They run in functions that `jax.jit` compiles and outside of these, and have
derivatives, those of the sum of the ranks' losses. All ranks of the process set
must call them in the same order, with trees of the same structure.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from keras_ring.core import operations, topology
from keras_ring.core.docstrings import described
from keras_ring.core.objects import require_member
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import SCALED, Adasum, Average, ReduceOp
from keras_ring.core.wire_formats import Compression, WireFormat
from keras_ring.jax import names
from keras_ring.jax.primitive import Call, bind

Tree = Any
"""An array of JAX or NumPy, a number, or a pytree of these."""


@described
def allreduce(
    tree: Tree,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Reduces arrays over all ranks; every rank gets the result.

    The arrays of a tree are reduced together, with one agreement of the ranks.

    Args:
        tree: An array, or a pytree of arrays, of the same shapes on every rank.
            {{reducible_dtypes}}
        op: {{op}}
        name: String, the same on all ranks. Defaults to the line of the
            program that calls this.
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: One of `kr.Compression.none`, `kr.Compression.fp16` and
            `kr.Compression.bf16`. Defaults to `kr.Compression.none`.
        process_set: {{process_set}}

    Returns:
        A tree of the same structure, shapes and dtypes, bitwise equal on all
        ranks.

    Raises:
        TypeError: If a dtype does not support this reduction.
        FailedPreconditionError: {{disagreement}} From a compiled function, a
            `jax.errors.JaxRuntimeError` with the same text; likewise below.
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    @jax.jit
    def step(parameters, batch):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, batch)
        return kr.allreduce(loss), kr.allreduce(gradients)
    ```
    """
    return _reduced(
        Kind.allreduce,
        tree,
        op,
        name,
        (prescale_factor, postscale_factor),
        compression,
        process_set,
    )


@described
def reducescatter(
    tree: Tree,
    op: ReduceOp = Average,
    *,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: WireFormat = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Reduces arrays over all ranks; each rank gets a part of their rows.

    Args:
        tree: An array of shape `[n, ...]`, or a pytree of these, the same on
            every rank. {{reducible_dtypes}}
        op: As in `allreduce`, but not `Adasum`.
        name: As in `allreduce`.
        prescale_factor: {{prescale_factor}}
        postscale_factor: {{postscale_factor}}
        compression: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        A tree of the rows of this rank. If `n` is not a multiple of the number
        of ranks, the first ranks have one row more.

    Raises:
        TypeError: If a dtype does not support this reduction.
        ValueError: If an array is a scalar, or `op` is `Adasum`.

    Example:
    ```python
    rows = kr.reducescatter(jnp.ones([kr.size(), 3]), kr.Sum)
    ```
    """
    if op is Adasum:
        raise ValueError(
            "`reducescatter` has no Adasum: what is in a part depends on all "
            "of the array. Take this rank's rows of an `allreduce`."
        )
    return _reduced(
        Kind.reducescatter,
        tree,
        op,
        name,
        (prescale_factor, postscale_factor),
        compression,
        process_set,
    )


@described
def allgather(
    tree: Tree,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Concatenates the ranks' arrays along the first dimension.

    Args:
        tree: An array of shape `[n, ...]`, or a pytree of these. Compiled
            functions have fixed shapes, so `n` must be the same on all ranks.
            {{movable_dtypes}}
        name: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        A tree of arrays of shape `[size * n, ...]`, in the order of the ranks,
        the same on all of them. `keras_ring.core.allgather` gathers arrays of
        NumPy with other numbers of rows on each rank.

    Raises:
        TypeError: If collectives do not support a dtype.
        ValueError: If an array is a scalar.

    Example:
    ```python
    ranks = kr.allgather(jnp.array([kr.rank()]))
    ```
    """
    leaves, treedef = _leaves("allgather", tree)
    _check_rows("allgather", leaves)
    rows = tuple(each.shape[0] * process_set.size() for each in leaves)
    return _run(Kind.allgather, leaves, treedef, name, process_set, rows=rows)


@described
def broadcast(
    tree: Tree,
    root_rank: int = 0,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Gives every rank the root's arrays.

    Args:
        tree: An array, or a pytree of arrays, of the same shapes on every rank;
            only the root's values matter. {{movable_dtypes}}
        root_rank: {{root_rank}} Defaults to `0`.
        name: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        A tree with the root's values.

    Raises:
        TypeError: If collectives do not support a dtype.
        ValueError: If `root_rank` is not a member.

    Example:
    ```python
    parameters, state = kr.broadcast((parameters, optimizer.init(parameters)))
    ```
    """
    require_member(root_rank, process_set)
    leaves, treedef = _leaves("broadcast", tree)
    return _run(
        Kind.broadcast, leaves, treedef, name, process_set, root=root_rank
    )


@described
def alltoall(
    tree: Tree,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Gives every rank its rows of each rank's arrays.

    Args:
        tree: An array of shape `[n, ...]`, or a pytree of these, the same on
            all ranks: first the rows for rank 0 (of the process set), then
            those for rank 1, and so on. `n` is a multiple of the number of
            ranks. {{movable_dtypes}}
        name: As in `allreduce`.
        process_set: {{process_set}}

    Returns:
        A tree of arrays of the same shapes, the rows in the order of the ranks
        that they came from. `keras_ring.core.alltoall` sends other numbers of
        rows to each rank.

    Raises:
        TypeError: If collectives do not support a dtype.
        ValueError: If an array cannot be divided among the ranks.

    Example:
    ```python
    rows = kr.alltoall(jnp.arange(2 * kr.size()))
    ```
    """
    leaves, treedef = _leaves("alltoall", tree)
    _check_rows("alltoall", leaves)
    members = process_set.size()
    for each in leaves:
        if each.shape[0] % members:
            raise ValueError(
                f"`alltoall` divides the rows of an array among {members} "
                f"ranks. Received: an array of shape {each.shape}"
            )
    # One collective for each array: the runtime groups those of other kinds.
    found = [
        _run_leaves(
            Kind.alltoall,
            [each],
            name if name is None or len(leaves) == 1 else f"{name}/{index}",
            process_set,
            rows=(each.shape[0],),
        )[0]
        for index, each in enumerate(leaves)
    ]
    return jax.tree.unflatten(treedef, found)


def _reduced(
    kind: Kind,
    tree: Tree,
    op: ReduceOp,
    name: str | None,
    factors: tuple[float, float],
    compression: WireFormat,
    process_set: ProcessSet,
) -> Tree:
    if not isinstance(op, ReduceOp):
        raise TypeError(
            "`op` must be one of kr.Average, Sum, Min, Max, Product, Adasum. "
            f"Received: {op!r}"
        )
    number = getattr(compression, "native", None)
    if number is None:
        raise TypeError(
            "`compression` must be one of `kr.Compression.none`, `fp16` and "
            f"`bf16`. Received: {compression!r}"
        )
    leaves, treedef = _leaves(kind.name, tree)
    for each in leaves:
        if each.dtype.name not in operations.reducible():
            raise TypeError(
                f"There is no {op.name} of {each.dtype.name} arrays. Expected: "
                f"{', '.join(sorted(operations.reducible()))}"
            )
        if op is Adasum and not jnp.issubdtype(each.dtype, jnp.floating):
            raise TypeError(
                "Adasum is of floating-point arrays only. Received: "
                f"{each.dtype.name}"
            )
    rows: tuple[int, ...] = ()
    if kind is Kind.reducescatter:
        _check_rows("reducescatter", leaves)
        rank, members = process_set.rank(), process_set.size()
        rows = tuple(
            each.shape[0] // members + (rank < each.shape[0] % members)
            for each in leaves
        )
    # Other reductions do not commute with factors, and integers lose digits.
    is_fused = op in SCALED and all(
        jnp.issubdtype(each.dtype, jnp.floating) for each in leaves
    )
    before, after = factors if is_fused else (1.0, 1.0)
    if not is_fused:
        leaves = [_times(each, factors[0]) for each in leaves]
    results = _run_leaves(
        kind,
        leaves,
        name,
        process_set,
        op=op,
        prescale=before,
        postscale=after,
        compression=number,
        rows=rows,
    )
    if not is_fused:
        results = [_times(each, factors[1]) for each in results]
    return jax.tree.unflatten(treedef, results)


def _times(array: Any, factor: float) -> Any:
    if factor == 1.0:
        return array
    if not jnp.issubdtype(array.dtype, jnp.floating) and factor.is_integer():
        # Exact, where JAX has no float64.
        return array * jnp.asarray(int(factor), array.dtype)
    return (array * factor).astype(array.dtype)


def _leaves(kind: str, tree: Tree) -> tuple[list[Any], Any]:
    leaves, treedef = jax.tree.flatten(tree)
    found = [jnp.asarray(each) for each in leaves]
    for each in found:
        if each.dtype.name not in operations.carried():
            raise TypeError(
                f"There is no {kind} of {each.dtype.name} arrays. Expected: "
                f"{', '.join(sorted(operations.carried()))}"
            )
    return found, treedef


def _check_rows(kind: str, leaves: list[Any]) -> None:
    for each in leaves:
        if not each.shape:
            raise ValueError(
                f"`{kind}` is of rows, and a scalar has none. Reshape it to [1]"
            )


def _run(
    kind: Kind,
    leaves: list[Any],
    treedef: Any,
    name: str | None,
    process_set: ProcessSet,
    **settings: Any,
) -> Tree:
    results = _run_leaves(kind, leaves, name, process_set, **settings)
    return jax.tree.unflatten(treedef, results)


def _run_leaves(
    kind: Kind,
    leaves: list[Any],
    name: str | None,
    process_set: ProcessSet,
    **settings: Any,
) -> list[Any]:
    if not leaves:
        return []
    # Before a job there are no ranks to reduce over: the error says so.
    topology.rank()
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{process_set} is not in this job: add it with "
            "`kr.add_process_set`, and trace again what uses it."
        )
    call = Call(
        kind,
        names.of_site(kind.name, leaves) if name is None else name,
        number,
        **settings,
    )
    return bind(call, leaves)
