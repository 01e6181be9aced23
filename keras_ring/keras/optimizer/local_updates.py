"""Allows single ranks to make updates of their own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from keras_ring.keras import scope


def are_allowed() -> bool:
    """Returns whether the caller runs inside `allow_local_updates()`."""
    return scope.current().allows_local_updates


def are_allowed_in_backward() -> bool:
    """Returns whether a hook of a backward pass runs inside of it.

    PyTorch runs those of a GPU's gradients in threads of its own, which have
    no context. There it counts whether any thread is inside.
    """
    if isinstance(threading.current_thread(), threading._DummyThread):
        return bool(_open)
    return are_allowed()


# One element for each such context that some thread is in.
_open: list[bool] = []


@contextlib.contextmanager
def allow_local_updates() -> Iterator[None]:
    """Lets optimizers apply gradients that were not reduced.

    With more than one rank, an optimizer that does not reduce its gradients
    raises `LocalUpdateError` at its first step. Use this context where each
    rank is meant to train on its own, or where the gradients were reduced in
    a way that cannot be seen from the optimizer, such as by `kr.allreduce`.

    A compiled step is checked while it is traced, so the context has to be
    around the first call of the step or inside of it.

    Example:
    ```python
    gradients = [kr.allreduce(g, name=v.path) for g, v in zip(grads, weights)]
    with kr.allow_local_updates():
        optimizer.apply(gradients, weights)
    ```
    """
    _open.append(True)
    try:
        with scope.inside(allows_local_updates=True):
            yield
    finally:
        _open.pop()
