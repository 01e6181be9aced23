"""Sums of sparse tensors, whose rows are gathered."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from keras_ring.core.docstrings import described
from keras_ring.core.operations import Kind
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.core.reduce_ops import Average, ReduceOp, Sum
from keras_ring.torch import gather_calls, reduction_calls
from keras_ring.torch.compression import Compression
from keras_ring.torch.operations import Handle, name_of
from keras_ring.torch.reduction_calls import Reduction


@described
def sparse_allreduce_async(
    tensor: Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    *,
    compression: Any = Compression.none,
) -> Handle:
    """Begins to reduce a sparse tensor over all ranks.

    Every rank gets the elements of all ranks, so this moves few bytes where
    each rank has few elements.

    Args:
        tensor: A `torch.sparse_coo` tensor of the same shape on every rank. The
            number of its elements may differ. {{reducible_dtypes}}
        name: {{async_name}}
        op: `kr.Average` or `kr.Sum`. Defaults to `kr.Average`.
        process_set: {{process_set}}
        compression: {{compression}}

    Returns:
        A handle for `synchronize`, which returns a coalesced sparse tensor.

    Raises:
        TypeError: If `tensor` is not sparse, or `op` is another operation.
        InvalidArgumentError: {{impossible}}

    Example:
    ```python
    handle = kr.sparse_allreduce_async(embedding.weight.grad, "embedding")
    embedding.weight.grad = kr.synchronize(handle)
    ```
    """
    if tensor.layout is not torch.sparse_coo:
        raise TypeError(
            "`sparse_allreduce_async` takes a tensor of layout "
            f"torch.sparse_coo. Received: {tensor.layout}"
        )
    name = name_of(Kind.allgather, name, is_async=True)
    reduction = Reduction(op, compression=compression, process_set=process_set)
    return allreduce(tensor, name, reduction)


def allreduce(tensor: Tensor, name: str, reduction: Reduction) -> Handle:
    """Submits the reduction of a sparse tensor; see `sparse_allreduce_async`.

    Args:
        tensor: A `torch.sparse_coo` tensor.
        name: String, the name of the collective.
        reduction: A `Reduction` by Average or Sum.

    Returns:
        A `Handle`.

    Raises:
        TypeError: If the operation is neither.
    """
    if reduction.op not in (Average, Sum):
        raise TypeError(
            f"There is no {reduction.op.name} of sparse tensors, only Average "
            f"and Sum. Received it for '{name}'. Convert the tensor by "
            "`to_dense()`, or set `sparse_as_dense=True`."
        )
    tensor = tensor.detach().coalesce()
    factor = reduction.prescale_factor * reduction.postscale_factor
    if reduction.op is Average:
        factor /= reduction.process_set.size()
    values, dtype = reduction.compression.compress(tensor.values())
    # The rows of what is gathered are elements.
    handle = gather_calls.allgather(
        [tensor.indices().t(), values], name, reduction.process_set
    )

    def finish(gathered: list[Tensor]) -> Tensor:
        indices, values = gathered
        values = reduction.compression.decompress(values, dtype)
        summed = torch.sparse_coo_tensor(
            indices.t(), values, tensor.shape, check_invariants=False
        ).coalesce()
        return torch.sparse_coo_tensor(
            summed.indices(),
            reduction_calls.scaled(summed.values(), factor),
            tensor.shape,
            is_coalesced=True,
            check_invariants=False,
        )

    return handle.then(finish)


def no_rows(tensor: Tensor) -> Tensor:
    """Returns a sparse tensor of the form of a tensor, with none of its rows.

    The gradient of a `torch.nn.Embedding` has this form.
    """
    indices = torch.empty((1, 0), dtype=torch.int64, device=tensor.device)
    values = tensor.detach().new_empty((0, *tensor.shape[1:]))
    return torch.sparse_coo_tensor(
        indices, values, tensor.shape, is_coalesced=True, check_invariants=False
    )
