"""Saves the state of training, and restores it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from keras_ring._typing import Model, Optimizer
from keras_ring.keras.checkpoint import background_write, training_state
from keras_ring.keras.model.model_state import check_model
from keras_ring.keras.model.moving_statistics import averaged_statistics


def save(
    model: Model,
    directory: str | os.PathLike[str],
    step: int,
    *,
    keep: int = 3,
    optimizers: Iterable[Optimizer] = (),
    average_statistics: bool = False,
    asynchronous: bool = False,
    copy_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Saves the weights, the optimizers' state and the seed generators.

    All ranks must call it; rank 0 writes. It returns on all ranks when the
    checkpoint is complete and on the disk. If a program is killed while it
    saves, its earlier checkpoints are still there.

    State that differs between ranks is saved for each rank: weights that were
    registered as local, and their optimizer variables; moving statistics of
    `keras.layers.BatchNormalization` and other weights that layers set for
    themselves; the states of stateful layers; and the seeds.

    A directory is for one job. A checkpoint is a folder in it, with a
    `manifest.json` that has the step, the number of ranks, the versions, and
    the size and SHA-256 of each file.

    Args:
        model: A `keras.Model` that is built.
        directory: Path of a directory, which is made if it does not exist.
            Only rank 0 needs access to it.
        step: Integer, at least 0, that identifies the checkpoint; the highest
            one is restored. A checkpoint of the same step is replaced.
        keep: Integer, the number of checkpoints to keep. Those of steps above
            `step` are not deleted. Defaults to `3`.
        optimizers: Optimizers that train the model and are not attributes of
            it. Give them to `restore`, too.
        average_statistics: Boolean. If `True`, the moving statistics of each
            `keras.layers.BatchNormalization` are saved as those of the data
            of all ranks together: the mean of the means, and the mean of the
            variances plus the variance of the means. The model keeps its own.
            Defaults to `False`.
        asynchronous: Boolean. If `True`, rank 0 copies the state and writes
            it in another thread, while all ranks go on. The checkpoint is
            complete when the next call of `save`, `restore` or `wait` returns,
            or the program has ended. Defaults to `False`.
        copy_dir: Path of a second directory, to which the checkpoint is copied
            when it is on the disk. It may be on another disk, in case the
            first one is lost with its host. It keeps as many checkpoints.
            Defaults to `None`.

    Raises:
        TypeError: If `model` is no `keras.Model`.
        ValueError: If an argument is wrong, or the model is not built.
        CheckpointError: On all ranks, with the cause, if rank 0 could not
            write this checkpoint or the last asynchronous one.

    Example:
    ```python
    for step in range(start, 10_000):
        train_step(next(batches))
        if step % 1000 == 999:
            kr.checkpoint.save(model, "checkpoints", step + 1)
    ```
    """
    check_model(model, "checkpoint.save")
    with averaged_statistics(model, average_statistics):
        training_state.save(
            model,
            directory,
            step,
            keep=keep,
            optimizers=optimizers,
            asynchronous=asynchronous,
            copy_dir=copy_dir,
        )


def wait() -> None:
    """Waits until a checkpoint that is being written is on the disk.

    All ranks must call it. It does nothing if no checkpoint is being written.
    Call it at the end of a program to learn whether the last write has failed.
    Without this call, rank 0 still waits before it ends, but a failure goes
    unnoticed.

    Raises:
        CheckpointError: On all ranks, with rank 0's cause in it, if rank 0
            could not write.

    Example:
    ```python
    kr.checkpoint.save(model, "checkpoints", 1, asynchronous=True)
    kr.checkpoint.wait()
    ```
    """
    background_write.wait()


def restore(
    model: Model,
    directory: str | os.PathLike[str],
    *,
    optimizers: Iterable[Optimizer] = (),
    fold_rank: bool = True,
    copy_dir: str | os.PathLike[str] | None = None,
) -> int | None:
    """Gives all ranks the state of the newest checkpoint.

    All ranks must call it. Rank 0 reads the checkpoint and shares it, so that
    all ranks have the same step, weights and optimizer state. State that
    differed between ranks is restored on each rank: see `save`.

    The number of ranks may differ from that of the job that saved. New ranks
    get the state of rank 0, and random numbers of their own, as
    `kr.broadcast_model` makes them.

    If an optimizer had variables when the model was saved and has none yet,
    they are made here.

    Files are compared with their manifest first. If a checkpoint is damaged,
    the one before is restored, with a warning that names the damaged file and
    what is wrong with it.

    Args:
        model: A `keras.Model`, built and compiled as the saved one.
        directory: The directory given to `save`.
        optimizers: Optimizers that train the model and are not attributes of
            it, as given to `save`.
        fold_rank: Boolean. If `False`, all ranks have the seeds of rank 0,
            and draw the same random numbers. Defaults to `True`.
        copy_dir: Path of the second directory that was given to `save`. A
            checkpoint that is missing or damaged in `directory` is read from
            here. Defaults to `None`.

    Returns:
        The step of the checkpoint. `None` if there is no checkpoint; the model
        is unchanged then.

    Raises:
        TypeError: If `model` is no `keras.Model`.
        ValueError: If the model is not built.
        CheckpointError: On all ranks, if there are checkpoints, but all of
            them are damaged, or if the newest good one is of another model.

    Example:
    ```python
    start = kr.checkpoint.restore(model, "checkpoints") or 0
    ```
    """
    check_model(model, "checkpoint.restore")
    manifest = training_state.restore(
        model,
        directory,
        optimizers=optimizers,
        fold_rank=fold_rank,
        copy_dir=copy_dir,
    )
    return None if manifest is None else int(manifest["step"])
