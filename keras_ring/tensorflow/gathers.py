"""Collectives without a reduction: they move tensors, or wait."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_ring._typing import Operation, Structure, Tensor
from keras_ring.core import process_sets
from keras_ring.core.arrays import note_join
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.tensorflow import libraries, names, ordering, xla
from keras_ring.tensorflow.autograph import do_not_convert
from keras_ring.tensorflow.op_attributes import Kind
from keras_ring.tensorflow.reduction_calls import (
    check_list,
    check_rows,
    independent,
)


@takes_horovods(
    "name ignore_name_scope process_set",
)
@do_not_convert
@described
def allgather(
    tensor: Tensor,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Concatenates the ranks' tensors along the first dimension.

    Args:
        tensor: A tensor of shape `[n_r, ...]` on rank `r`. `n_r` may differ
            from rank to rank (and may be 0); dtype and the other dimensions
            must agree. {{movable}}
        name: {{name}}
        process_set: {{process_set}}

    Returns:
        A tensor of shape `[n_0 + n_1 + ..., ...]`: the ranks' tensors in the
        order of the ranks, the same on all of them.

    Raises:
        ValueError: If `tensor` is a scalar.
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    predictions = kr.allgather(local_predictions, name="predictions")
    ```
    """
    return _allgather(
        [tensor], names.collective_name("allgather", name), process_set
    )[0]


@takes_horovods(
    "name ignore_name_scope process_set",
)
@do_not_convert
@described
def grouped_allgather(
    tensors: Sequence[Tensor],
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Gathers several tensors as one operation.

    The group is atomic: it is one entry under one name, gathered when every
    rank has all of it.

    Args:
        tensors: A list of tensors of shapes `[n_ir, ...]` on rank `r`, which
            may be empty. `n_ir` may differ from rank to rank (and may be 0);
            dtypes and the other dimensions must agree between ranks.
            {{movable}}
        name: {{name}}
        process_set: {{process_set}}

    Returns:
        A list of tensors of shapes `[n_i0 + n_i1 + ..., ...]`.

    Raises:
        TypeError: If `tensors` is not a list or tuple.
        ValueError: If one of the tensors is a scalar.
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    labels, scores = kr.grouped_allgather([labels, scores], name="outputs")
    ```
    """
    check_list(tensors)
    if not tensors:
        return []
    return _allgather(
        tensors, names.collective_name("grouped_allgather", name), process_set
    )


def _allgather(
    tensors: Sequence[Tensor], name: str, process_set: ProcessSet
) -> list[Tensor]:
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    for tensor in tensors:
        check_rows("allgather", "concatenate along", tensor)
    if xla.is_tracing():
        xla.reject(
            "allgather",
            name,
            "How many rows the other ranks bring is known only when it runs, "
            "and XLA compiles for fixed shapes. Call it outside of the "
            "function, or allreduce a tensor in which each rank fills its own "
            "rows. (A `tf.IndexedSlices` is reduced by allgathers: make it "
            "dense with `tf.convert_to_tensor` first.)",
        )
    gathered: list[Tensor] = libraries.ops().keras_ring_allgather(
        tensors=tensors,
        tensor_name=name,
        process_set_id=process_sets.id_of(process_set),
    )
    independent(gathered[0])
    return gathered


@takes_horovods(
    "splits name ignore_name_scope process_set",
)
@do_not_convert
@described
def alltoall(
    tensor: Tensor,
    splits: Tensor = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Structure:
    """Gives every rank its rows of each rank's tensor.

    Args:
        tensor: A tensor of shape `[n, ...]`: first the rows for rank 0 (of
            the process set), then those for rank 1, and so on. `n` may differ
            from rank to rank; dtype and the other dimensions must agree.
            {{movable}}
        splits: A vector of integers of shape `[size]`, how many rows go to
            each rank; its sum is `n`. Defaults to equal numbers of rows, for
            which `n` must be a multiple of `size`.
        name: {{name}}
        process_set: {{process_set}}

    Returns:
        A tensor of shape `[m_0 + m_1 + ..., ...]`: the `m_r` rows that each
        rank `r` has sent to this one, in the order of the ranks. If `splits`
        is given, a tuple of that tensor and of `[m_0, m_1, ...]`, a vector of
        the shape and dtype of `splits`.

    Raises:
        TypeError: If `splits` holds no integers.
        ValueError: If `tensor` is a scalar or `splits` is not a vector.
        tf.errors.InvalidArgumentError: On all ranks, if the splits of one are
            negative, too many or too few, or do not add up to its rows, or if
            it has no `splits` and its rows cannot be divided evenly. Or:
            {{impossible}}
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    # Each example goes to the rank that holds its expert.
    inputs, counts = kr.alltoall(sorted_inputs, splits, name="to_experts")
    outputs, _ = kr.alltoall(expert(inputs), counts, name="from_experts")
    ```
    """
    tensor = tf.convert_to_tensor(tensor)
    check_rows("alltoall", "divide", tensor)
    name = names.collective_name("alltoall", name)
    if xla.is_tracing():
        xla.reject(
            "alltoall",
            name,
            "How many rows the other ranks send is known only when it runs, "
            "and XLA compiles for fixed shapes. Call it outside of the "
            "function.",
        )
    given = tf.zeros([0], tf.int64) if splits is None else _as_splits(splits)
    received, received_splits = libraries.ops().keras_ring_alltoall(
        tensor=tensor,
        splits=tf.cast(given, tf.int64),
        tensor_name=name,
        process_set_id=process_sets.id_of(process_set),
    )
    independent(received)
    if splits is None:
        return received
    return received, tf.cast(received_splits, given.dtype)


def _as_splits(splits: Tensor) -> Tensor:
    tensor = tf.convert_to_tensor(splits)
    if not tensor.dtype.is_integer:
        raise TypeError(
            "`splits` must be a vector of integers. Received: "
            f"{splits} of type {tensor.dtype.name}"
        )
    if tensor.shape.rank not in (None, 1) or tensor.shape == [0]:
        raise ValueError(
            "`splits` must be a vector with the number of rows for each rank. "
            f"Received: {splits} of shape {tensor.shape}"
        )
    return tensor


@takes_horovods(
    "name ignore_name_scope process_set",
)
@do_not_convert
@described
def broadcast(
    tensor: Tensor,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Gives every rank the root's tensor.

    Args:
        tensor: A tensor of the same dtype and shape on every rank; only the
            root's values matter. {{movable}}
        root_rank: {{root_rank}}
        name: {{name}}
        process_set: {{process_set}}

    Returns:
        The root's tensor, of the same dtype and shape.

    Raises:
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    seed = kr.broadcast(seed, root_rank=0, name="seed")
    ```
    """
    return broadcast_group([tensor], root_rank, name, process_set)[0]


@do_not_convert
@described
def broadcast_group(
    tensors: Sequence[Tensor],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Broadcasts several tensors, at least one, as one operation.

    Args:
        tensors: A list of tensors as in `broadcast`; dtypes may differ.
        root_rank: As in `broadcast`.
        name: {{name}}
        process_set: {{process_set}}

    Returns:
        A list of tensors.
    """
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    attributes: dict[str, int | str] = {
        "tensor_name": names.collective_name("broadcast", name),
        "root_rank": root_rank,
        "process_set_id": process_sets.id_of(process_set),
    }
    if xla.is_tracing():
        start = xla.Start(tensors, {"kind": int(Kind.broadcast), **attributes})
        results: list[Tensor] = xla.run([start])[0]
        return results
    received: list[Tensor] = libraries.ops().keras_ring_broadcast(
        tensors=tensors, **attributes
    )
    independent(received[0])
    return received


@takes_horovods(
    "process_set name",
)
@do_not_convert
@described
def barrier(
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Operation | None:
    """Waits until every rank has called this.

    In a `tf.function` it is ordered among the function's other side effects,
    but other collectives may overlap with it.

    Args:
        name: {{name}}
        process_set: {{process_set}}

    Returns:
        In a graph, the operation; in eager execution, `None`.

    Raises:
        tf.errors.FailedPreconditionError: {{disagreement}}
        tf.errors.InvalidArgumentError: {{impossible}}
        tf.errors.UnavailableError: {{lost}}

    Example:
    ```python
    if kr.rank() == 0:
        download(data)
    kr.barrier()
    ```
    """
    name = names.collective_name("barrier", name)
    if xla.is_tracing():
        xla.reject(
            "barrier",
            name,
            "XLA keeps no order between what has no result and the rest. Call "
            "it outside of the function.",
        )
    return libraries.ops().keras_ring_barrier(
        tensor_name=name, process_set_id=process_sets.id_of(process_set)
    )


@do_not_convert
@described
def join() -> int | Tensor:
    """Declares that this rank has no more data, and waits until all have.

    Use it if ranks have different numbers of steps. A rank that has joined is
    left out of the later collectives of the others:

    * `allreduce`: it contributes nothing. `Average` divides by the number of
      ranks that contribute; extrema and products are theirs; in an `Adasum` it
      counts as a vector of zeros.
    * `allgather` and `alltoall`: it contributes no rows. `broadcast` works
      without it, and `barrier` does not wait for it.
    * Collectives that need it, or have data for it alone, are an error on all
      others: a `broadcast` from it, a `reducescatter`, an `alltoall` with rows
      for it.

    It begins when all earlier collectives of this rank are agreed on, and until
    it returns, the rank can start no other. Then all ranks go on together, and
    may join again. It does not apply to process sets: ranks join the job, and
    collectives on a set still need all of its members.

    In a `tf.function` it waits for the collectives made before it; make none
    after it. In a TensorFlow 1 graph run it by itself, or with
    `tf.control_dependencies` on the collectives before it.

    Returns:
        The last rank to join, the same on all ranks: an integer, or in a graph
        a scalar tensor of type int32. If several ranks are last together, it
        is the lowest; they have taken part in the same collectives.

    Raises:
        tf.errors.UnavailableError: If a rank is lost or has left the job
            before it joined.
        tf.errors.FailedPreconditionError: If this rank is joining already.

    Example:
    ```python
    for x, y in batches_of_this_rank:  # their number may differ
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        tape = kr.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
    last_rank = kr.join()
    # Only this one has taken part in all steps.
    kr.broadcast_variables(model.variables, root_rank=last_rank)
    ```
    """
    if xla.is_tracing():
        xla.reject(
            "join",
            "join",
            "XLA keeps no order between it and the collectives before it. "
            "Call it outside of the function.",
        )
    note_join()
    function = libraries.ops().keras_ring_join
    if tf.executing_eagerly():
        return int(function(tensor_name="join"))
    with tf.control_dependencies(ordering.collectives_so_far()):
        return function(tensor_name="join")
