"""Names and arguments of Horovod that the core does not have."""

from __future__ import annotations

from typing import Any

from keras_ring.core import arrays
from keras_ring.core.docstrings import described
from keras_ring.core.process_sets import ProcessSet, global_process_set
from keras_ring.errors import CollectiveError

HorovodInternalError = CollectiveError
"""The base class of the errors of collectives, by Horovod's name."""


@described
def barrier(
    process_set: ProcessSet = global_process_set, *, name: str | None = None
) -> None:
    """Waits until every rank has called this.

    Args:
        process_set: {{process_set}}
        name: {{array_name}}

    Raises:
        FailedPreconditionError: {{disagreement}}
        InvalidArgumentError: {{impossible}}
        UnavailableError: {{lost}}

    Example:
    ```python
    if kr.rank() == 0:
        download(data)
    kr.barrier()
    ```
    """
    arrays.barrier(name=name, process_set=process_set)


def join(device: Any = -1) -> int:
    """Reports that this rank has no more data, and waits for all to do so.

    Until then, the other ranks' collectives go on without this rank: it counts
    as zeros in a reduction, whose average is still over all ranks, and has no
    rows in an allgather.

    Args:
        device: Unused; Horovod has this argument.

    Returns:
        Integer, the last rank to join, the same on all ranks.

    Raises:
        UnavailableError: If a rank is lost or has left the job before it
            joined.
        FailedPreconditionError: If this rank is joining already.

    Example:
    ```python
    for x, y in batches_of_this_rank:  # their number may differ
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    kr.join()
    ```
    """
    del device
    return arrays.join()
