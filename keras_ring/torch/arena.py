"""Puts PyTorch's host tensors into memory that other ranks can read.

PyTorch's allocator can be replaced at any time, so this is done when a job
starts: the gradients of its first step are in the arena. Without the library
for this version of PyTorch (its headers were not there when keras_ring was
built), tensors are copied through shared memory, with the same results.
"""

from __future__ import annotations

import functools

import torch

from keras_ring.core import arena, native, notices


def is_built() -> bool:
    """Returns whether there is an allocator for this version of PyTorch."""
    return native.library_path("torch", torch.__version__).exists()


@functools.cache
def install() -> None:
    """Replaces PyTorch's allocator, in a rank of a job on one host or more.

    It has no effect where the job needs no arena, or the library was not built.
    """
    num_ranks = arena.num_ranks()
    if not num_ranks or not is_built():
        return
    try:
        why = native.install_arena("torch", torch.__version__, num_ranks)
    except OSError as error:
        why = str(error)
    if why:
        notices.warn_once(
            f"PyTorch's tensors are copied through shared memory: {why}. "
            "Results are the same."
        )
