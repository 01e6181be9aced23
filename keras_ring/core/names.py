"""The name of collectives that a program gives none."""

from __future__ import annotations

import threading


class _Owner:
    """The thread whose collectives need no names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def check(self, kind: str) -> None:
        """Raises if collectives of two threads could be taken for each other.

        Those of one thread follow each other, so one name serves them all.
        Those of two may come in another order on another rank, and nothing
        would tell them apart.
        """
        caller = threading.current_thread()
        # A thread of TensorFlow's that runs a `tf.py_function`: any of them
        # may run any.
        if isinstance(caller, threading._DummyThread):
            return
        with self._lock:
            owner = self._thread
            if owner is None or owner is caller or not owner.is_alive():
                self._thread = caller
                return
        raise ValueError(
            f"`{kind}` was called without a name on thread {caller.name!r},"
            f" and thread {owner.name!r} has made collectives without names"
            " before. The ranks could take those of one thread for those of"
            " the other. Give each collective of the threads a name of its"
            f' own: kr.{kind}(..., name="...").'
        )


_owner = _Owner()


def eager_name(kind: str, name: str | None) -> str:
    """Returns the name of a collective that ends before the next one begins.

    So one name serves all that have none, and the ranks' response caches stay
    small.

    Args:
        kind: String, what is made, such as `"allreduce"`.
        name: String, or `None`.

    Returns:
        A string.

    Raises:
        ValueError: If two threads make collectives without names.
    """
    if name is not None:
        return name
    _owner.check(kind)
    return f"{kind}.eager"
