"""Has one rank of a job show Keras' progress bars."""

from __future__ import annotations

import functools
from typing import Any

from keras_ring._compat import keras

_HOOKED = "_keras_ring_hooked"


def install() -> None:
    """Leaves progress bars out that nobody asked for. Once is enough.

    For all ranks but rank 0. Where a program passes `verbose` to `fit`,
    `evaluate` or `predict`, that counts; Keras 2 does not tell whether it did,
    and shows them all.
    """
    logger = keras.callbacks.ProgbarLogger
    set_params = logger.set_params
    if hasattr(set_params, _HOOKED):
        return

    @functools.wraps(set_params)
    def quiet_by_default(self: Any, params: dict[str, Any]) -> None:
        if params.get("verbose") == "auto":
            params = {**params, "verbose": 0}
        set_params(self, params)

    setattr(quiet_by_default, _HOOKED, True)
    logger.set_params = quiet_by_default
