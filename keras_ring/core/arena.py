"""Puts TensorFlow's tensors into memory that other ranks of the host can read.

TensorFlow takes its allocator of CPU memory from a registry once, when it makes
its first tensor. So our allocator is registered as soon as TensorFlow is
imported: at the import of keras_ring, or at that of TensorFlow if it comes
later. If this is too late, tensors are copied through shared memory, which is
no error.
"""

from __future__ import annotations

import os
import sys

from keras_ring import errors
from keras_ring.core import import_hooks, native, parent_rank
from keras_ring.core.engines import known
from keras_ring.protocol import contract

# The allocator's reason if it came too late (tf_ops/arena_allocator.cc).
_TOO_LATE = "TensorFlow has made tensors already"

# The reason why the allocator is not used; empty if there is none.
_refusal = ""


def prepare() -> None:
    """Installs the allocator now, or when TensorFlow is imported.

    It has no effect in a program that is not a rank of a job of several, such
    as one that a rank has started.
    """
    # Only these variables are read here. The native options read all others,
    # but most programs that import keras_ring need not load them.
    if _may_have_several_ranks():
        import_hooks.frameworks.after("tensorflow", _install)


def num_ranks() -> int:
    """Returns the number of ranks whose tensors should be in arenas, or 0.

    It may be called before `init()`.
    """
    return _zero_copy_ranks() if _may_have_several_ranks() else 0


def _zero_copy_ranks() -> int:
    return int(native.core().zero_copy_ranks(_size_of_engine()))


def _may_have_several_ranks() -> bool:
    if parent_rank.found(os.environ) is not None:
        return False
    size = os.environ.get(contract.SIZE, "")
    return bool(size or _size_of_engine()) and size != "1"


def _size_of_engine() -> int:
    """Returns the number of processes that an engine has started, or 0."""
    found = known.identity_among_several(os.environ)
    return found[1].size or 0 if found else 0


def refusal() -> str:
    """Returns why TensorFlow's tensors are not in shared memory, or `""`."""
    return _refusal


def remedy() -> str:
    """Returns advice on how to avoid the refusal."""
    if _refusal == _TOO_LATE:
        return "import keras_ring before anything that makes tensors"
    return (
        "results are the same; to avoid it, give the process what it lacks "
        "(memory, shared memory, files: `ulimit -a`)"
    )


def _install() -> None:
    global _refusal
    version = sys.modules["tensorflow"].__version__
    if native.mismatch_with(version):
        return  # said elsewhere
    try:
        ranks = _zero_copy_ranks()
        if ranks:
            _refusal = native.install_arena("arena", version, ranks)
    except errors.BuildMismatchError:
        return  # `init()` says so; an import of TensorFlow goes on
    except OSError as error:
        _refusal = f"its allocator cannot be loaded: {error}"
