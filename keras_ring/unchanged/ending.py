"""Notice at the end of a program that has trained nothing."""

from __future__ import annotations

import atexit
import sys

from keras_ring.core import topology
from keras_ring.core.notices import say

_has_trained = False


def install() -> None:
    """Registers the notice for the end of the program."""
    atexit.register(_say)


def note_training() -> None:
    """Records that something is trained."""
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
