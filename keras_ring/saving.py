"""Loads a model and makes its optimizer reduce again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from keras_ring import _saved_files
from keras_ring._checkpoint_files import Damaged
from keras_ring._compat import keras
from keras_ring.errors import CheckpointError
from keras_ring.optimizer import DistributedOptimizer


def load_model(
    path: str | os.PathLike[str],
    *,
    custom_objects: dict[str, Any] | None = None,
    safe_mode: bool = True,
    **settings: Any,
) -> Any:
    """Loads a model by `keras.saving.load_model` and distributes its optimizer.

    A model file says nothing of the job that wrote it: it can be opened by
    plain Keras, and training in a job again needs the settings again. Every
    rank reads the file. One that `kr.callbacks.ModelCheckpoint` wrote is
    compared with its manifest first.

    Args:
        path: Path of a file that `model.save` or
            `kr.callbacks.ModelCheckpoint` wrote.
        custom_objects: As in `keras.saving.load_model`.
        safe_mode: As in `keras.saving.load_model`.
        **settings: The arguments of `DistributedOptimizer` after the first.

    Returns:
        A `keras.Model`. If it was compiled, its optimizer has the state that
        was saved, and reduces.

    Raises:
        CheckpointError: If the file is not what its manifest says.

    Example:
    ```python
    model = kr.load_model("model.keras")
    model.fit(...)
    ```
    """
    try:
        _saved_files.require_whole(Path(path))
    except Damaged as damaged:
        raise CheckpointError(
            f"The model is damaged: {damaged}. Use another copy of it; to load "
            "it all the same, delete the manifest."
        ) from damaged
    model = keras.saving.load_model(
        path, custom_objects=custom_objects, safe_mode=safe_mode
    )
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **settings)
    return model
