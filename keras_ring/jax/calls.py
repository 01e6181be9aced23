"""The calls of compiled programs that start collectives and wait for them.

A collective is two of them: one that copies its arrays, starts it and returns
the number of a ticket; and one that takes the ticket and writes the results,
without blocking a thread of XLA meanwhile. `xla_ops` has both.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import jaxlib.version
import numpy as np

from keras_ring.core import arena, native, notices
from keras_ring.jax import ordering

_THREADS_OF_RANK, _THREADS_OF_JAX = "OMP_NUM_THREADS", "PJRT_NPROC"
_START, _DONE = "keras_ring_start", "keras_ring_done"
_TICKET = jax.core.ShapedArray((), np.dtype(np.int32))


def install() -> None:
    """Prepares a start of a job.

    A rank that the launcher has given some threads tells JAX of them: without
    that, each rank computes with as many threads as the host has cores. JAX
    reads this when it computes for the first time.
    """
    threads = os.environ.get(_THREADS_OF_RANK)
    if threads:
        os.environ.setdefault(_THREADS_OF_JAX, threads)
    _install_arena()


def finish() -> None:
    """Waits for the programs that have been started.

    JAX returns from a compiled function before it has run. If this rank left
    the job meanwhile, the collectives of its last step would fail on others.

    Raises:
        jax.errors.JaxRuntimeError: If one of them fails. The program may not
            have looked at its results.
    """
    jax.effects_barrier()


@functools.cache
def _install_arena() -> None:
    num_ranks = arena.num_ranks()
    version = jaxlib.version.__version__
    if not num_ranks or not native.library_path("jax", version).exists():
        return
    try:
        why = native.install_arena("jax", version, num_ranks)
    except OSError as error:
        why = str(error)
    if why:
        notices.warn_once(
            f"arrays of JAX are copied through shared memory: {why}. Results "
            "are the same."
        )


@functools.cache
def _register() -> None:
    for name, handler in native.xla_calls(jaxlib.version.__version__).items():
        jax.ffi.register_ffi_target(
            name, jax.ffi.pycapsule(handler), platform="cpu"
        )


def lower(
    context: Any, *operands: Any, attributes: dict[str, Any]
) -> list[Any]:
    """Puts a start and a wait into the program that is being lowered.

    Args:
        context: The `mlir.LoweringRuleContext` of the collective.
        *operands: The arrays.
        attributes: A dictionary: those of the start, as numbers of NumPy and
            strings.

    Returns:
        The results.
    """
    _register()
    token = ordering.token_before(context)
    ticket, token = jax.ffi.ffi_lowering(_START, has_side_effect=True)(
        context.replace(
            avals_in=[*context.avals_in, ordering.TOKEN],
            avals_out=[_TICKET, ordering.TOKEN],
        ),
        *operands,
        token,
        **attributes,
    )
    *results, token = jax.ffi.ffi_lowering(_DONE, has_side_effect=True)(
        context.replace(
            avals_in=[_TICKET, ordering.TOKEN],
            avals_out=[*context.avals_out, ordering.TOKEN],
        ),
        ticket,
        token,
        own=np.int64(1),
    )
    ordering.set_token_after(context, token)
    return list(results)
