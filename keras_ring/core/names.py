"""The names of collectives that a program does not name."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable


class _Owner:
    """The thread whose collectives need no names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def check(self, kind: str) -> None:
        """Raises an error if collectives of two threads could be confused.

        Collectives of one thread follow each other, so one name serves them
        all. Those of two threads may come in another order on another rank, and
        could not be distinguished.
        """
        caller = threading.current_thread()
        # A thread of TensorFlow that runs a `tf.py_function`; any of its
        # threads may run any function.
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

    So all collectives of a kind without a name can share one, which keeps the
    ranks' response caches small.

    Args:
        kind: String, the kind of the collective, such as `"allreduce"`.
        name: String, the name that the program gives, or `None`.

    Returns:
        String, the name.

    Raises:
        ValueError: If two threads make collectives without names.
    """
    if name is not None:
        return name
    _owner.check(kind)
    return f"{kind}.eager"


def numbered(names: Iterable[str]) -> list[str]:
    """Returns names that are all different.

    Args:
        names: Strings, in an order that all ranks share.

    Returns:
        A list of strings. A name that came before gets a number as suffix.
    """
    counts: collections.Counter[str] = collections.Counter()
    found = []
    for name in names:
        # The program may have given the numbered name, too.
        while counts[name]:
            counts[name] += 1
            name = f"{name}#{counts[name] - 1}"
        counts[name] += 1
        found.append(name)
    return found
