"""Loads a model and makes its optimizer reduce again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_ring._typing import Model
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.errors import CheckpointError
from keras_ring.keras.checkpoint import saved_files
from keras_ring.keras.checkpoint.checkpoint_files import Damaged
from keras_ring.keras.lanes import keras
from keras_ring.keras.optimizer.optimizer import DistributedOptimizer


@takes_horovods("custom_optimizers custom_objects compression")
def load_model(
    path: str | os.PathLike[str],
    *,
    custom_objects: dict[str, Any] | None = None,
    custom_optimizers: Sequence[type] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
    **settings: Any,
) -> Model:
    """Loads a model by `keras.saving.load_model` and distributes its optimizer.

    A model file does not depend on the job that wrote it: plain Keras can open
    it. So the settings of the optimizer have to be given again to train in a
    job. Every rank reads the file. A file of `kr.callbacks.ModelCheckpoint` is
    compared with its manifest first.

    Args:
        path: Path of a file that `model.save` or
            `kr.callbacks.ModelCheckpoint` wrote.
        custom_objects: As in `keras.saving.load_model`.
        custom_optimizers: A list of classes of optimizers, as in
            `custom_objects` under their names.
        compile: Boolean, whether the model is compiled as it was when it was
            saved. If `False`, it has no optimizer. Defaults to `True`.
        safe_mode: As in `keras.saving.load_model`.
        **settings: The arguments of `DistributedOptimizer` after the first.

    Returns:
        A `keras.Model`. If it is compiled, its optimizer has the saved state
        and reduces gradients.

    Raises:
        CheckpointError: If the file differs from its manifest.
        TypeError: If there is no such setting.
        ValueError: If a setting has no meaning.

    Example:
    ```python
    model = kr.load_model("model.keras")
    model.fit(x, y)
    ```
    """
    if settings:
        # Checks the settings also if the model has no optimizer.
        DistributedOptimizer(keras.optimizers.SGD(), **settings)
    for each in custom_optimizers or ():
        custom_objects = {each.__name__: each, **(custom_objects or {})}
    try:
        saved_files.require_whole(Path(path))
    except Damaged as damaged:
        raise CheckpointError(
            f"The model is damaged: {damaged}. Use another copy of it; to load "
            "it all the same, delete the manifest."
        ) from damaged
    model = keras.saving.load_model(
        path,
        custom_objects=custom_objects,
        compile=compile,
        safe_mode=safe_mode,
    )
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **settings)
    return model
