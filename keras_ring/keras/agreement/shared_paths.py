"""Paths of variables that are the same on all ranks.

The path of a Keras layer contains the number of layers of its kind that the
process has made before. A rank that has made one more, to print its summary,
has other paths for the same model. Models are compared by the order of their
variables, so all ranks use the paths of the lowest rank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from keras_ring._typing import Variable
from keras_ring.core import arrays
from keras_ring.core.agreement import require_same
from keras_ring.core.objects import allgather_object
from keras_ring.core.process_sets import ProcessSet
from keras_ring.keras.backends import backend

# An attribute of a TensorFlow variable.
_SHARED = "_keras_ring_shared_path"


def shared_path(variable: Variable) -> str | None:
    """Returns the path that all ranks use, or `None` if it has none."""
    path = backend.variable_path(variable)
    if path is None:
        return None
    return getattr(backend.storage(variable), _SHARED, path)


def agree(
    variables: Sequence[Variable], name: str, what: str, process_set: ProcessSet
) -> None:
    """Makes the members of a process set use the same paths.

    Args:
        variables: Variables, in an order that all members share.
        name: String, the name of the exchange, the same on all members.
        what: String, a description of the variables, for the error.
        process_set: The process set.

    Raises:
        ValueError: On all members, if shapes or dtypes differ, so that these
            are not the same variables.
    """
    paths = [str(shared_path(variable)) for variable in variables]
    kinds = [f"{backend.dtype_name(v)} {tuple(v.shape)}" for v in variables]
    lines = [
        f"{path} of {kind}" for path, kind in zip(paths, kinds, strict=True)
    ]
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    digests = arrays.gather_digests(digest, f"{name}/paths", process_set)
    # Ranks that have joined send no row.
    if (digests == digests[0]).all() or len(digests) < process_set.size():
        return
    require_same(name, what, lines, kinds, process_set)
    of_lowest = allgather_object(paths, f"{name}/all_paths", process_set)[0]
    for variable, path in zip(variables, of_lowest, strict=True):
        setattr(backend.storage(variable), _SHARED, path)
