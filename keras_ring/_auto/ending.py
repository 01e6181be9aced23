"""Says at the end that a program has trained nothing, if it has not."""

from __future__ import annotations

import atexit
import sys

from keras_ring._auto.said import say
from keras_ring._runtime import topology

_has_trained = False


def install() -> None:
    """Has it said at the end of the program."""
    atexit.register(_say)


def note_training() -> None:
    """Notes that something is trained."""
    global _has_trained
    _has_trained = True


def _say() -> None:
    failed = getattr(sys, "last_value", None) is not None
    if _has_trained or failed or not topology.is_initialized():
        return
    say(
        "this program has trained nothing by `fit`: each of the "
        f"{topology.size()} ranks has done all of it"
    )
