"""Keras' own choice whether XLA compiles a model.

With `jit_compile="auto"`, the default, Keras 3 has XLA compile a model where
TensorFlow sees a device that is not the CPU. Keras 2 compiles only what the
program says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from keras_ring._typing import Model
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring


def install(can_compile: Callable[[], bool]) -> None:
    """Changes the class of Keras. Calling it once is enough.

    Args:
        can_compile: Callable, asked where Keras would have a model compiled.
    """
    hooks.subscribe(
        events.COMPILER_CHOSEN,
        functools.partial(_where_it_can, can_compile=can_compile),
        ring=Ring.JOB,
        purpose="XLA is not chosen for GPUs",
    )


def _where_it_can(
    resolve: Callable[[Model], bool], can_compile: Callable[[], bool]
) -> Callable[[Model], bool]:
    @functools.wraps(resolve)
    def resolve_for_job(self: Model) -> bool:
        return resolve(self) and can_compile()

    return resolve_for_job
