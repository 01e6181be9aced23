"""keras_ring as a system to measure on JAX, and the floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import keras_ring.jax as kr
from keras_ring.bench import contents
from keras_ring.bench.case import Case
from keras_ring.bench.job_system import Floor, JobSystem
from keras_ring.bench.system import Prepared

_Reduce = Callable[[list[jax.Array]], Sequence[jax.Array]]


class KerasRing(JobSystem):
    """keras_ring in the job of this process, which it joins when it is made."""

    def __init__(self) -> None:
        kr.init()
        super().__init__()

    def prepare(self, case: Case) -> Prepared:
        """Makes the arrays and the compiled function of a case.

        Each array is an operation of its own, or all are one.
        """
        op = getattr(kr, case.op)
        compression = getattr(kr.Compression, case.compression)

        def separate(arrays: list[jax.Array]) -> list[jax.Array]:
            found = [
                kr.allreduce(
                    array,
                    op,
                    name=f"{case.name}/{index}",
                    compression=compression,
                )
                for index, array in reversed(list(enumerate(arrays)))
            ]
            return found[::-1]

        def grouped(arrays: list[jax.Array]) -> Sequence[jax.Array]:
            reduced: Sequence[jax.Array] = kr.allreduce(
                arrays, op, name=case.name, compression=compression
            )
            return reduced

        return Prepared(
            run=_made_by(
                case, self.rank, grouped if case.grouped else separate
            ),
            expected=contents.expected(case, self.size),
        )


class NoCollective(Floor, KerasRing):
    """A system that reduces nothing."""

    def prepare(self, case: Case) -> Prepared:
        """Makes the arrays, which are copied in place of the collective."""
        return Prepared(
            run=_made_by(
                case, self.rank, lambda arrays: [jnp.copy(x) for x in arrays]
            ),
            expected=[
                contents.period(case.op, index, self.rank)
                for index in range(len(case.shapes))
            ],
        )


SYSTEMS = {"keras_ring": KerasRing, "none": NoCollective}


def _made_by(case: Case, rank: int, reduce: _Reduce) -> Callable[[], Any]:
    """Returns a function that reduces the arrays of a case once."""
    if case.dtype.endswith("64"):
        jax.config.update("jax_enable_x64", True)
    inputs = [
        jnp.asarray(array, case.dtype)
        for array in contents.arrays(case, rank, "float64")
    ]
    one = jnp.ones((), case.dtype)

    def step(arrays: list[jax.Array], factor: jax.Array) -> Sequence[jax.Array]:
        return reduce([x * factor for x in arrays] if case.fresh else arrays)

    compiled = jax.jit(step)

    def run() -> Any:
        return jax.block_until_ready(compiled(inputs, one))

    return run
