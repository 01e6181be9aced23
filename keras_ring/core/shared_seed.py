"""A number that is the same on all ranks of a job, and differs between jobs.

It is computed from the job's key, without an exchange. A collective would make
TensorFlow set up its devices, which a program may want to configure first.
"""

from __future__ import annotations

import hashlib

_LABEL = b"keras_ring shared seed"
_BYTES = 4

_seed = 0


def note(key: str) -> None:
    """Sets the number from the key of the job that begins.

    Args:
        key: String, the job's secret; empty for a job of one rank.
    """
    global _seed
    digest = hashlib.sha256(_LABEL + key.encode()).digest()
    # Seeds of NumPy and Keras are below 2^32.
    _seed = int.from_bytes(digest[:_BYTES], "little")


def get() -> int:
    """Returns the number, from 0 to 2^32 - 1."""
    return _seed
