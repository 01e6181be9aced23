"""Saves the state of training, and goes on from it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from keras_ring._model.moving_statistics import averaged_statistics
from keras_ring._typing import Model, Optimizer
from keras_ring.checkpoint import background_write, training_state


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

    All ranks must call it; rank 0 writes. When it returns, the checkpoint is
    complete and on the disk, and no rank has gone on before. A program that is
    killed while it saves leaves the checkpoints it had.

    What is not the same on all ranks is saved for each of them: weights that
    were registered as local, and what the optimizer remembers of them; moving
    statistics of `keras.layers.BatchNormalization` and other weights that
    layers set for themselves; the states of stateful layers; and the seeds.

    A directory is for one job. A checkpoint is a folder in it, with a
    `manifest.json` that has the step, the number of ranks, the versions, and
    the size and SHA-256 of each file.

    Args:
        model: A `keras.Model` that is built.
        directory: Path of a directory, made if it is not there. Other ranks
            than 0 need not see it.
        step: Integer, at least 0, that tells checkpoints apart; the highest
            one is restored. A step that is there already is replaced.
        keep: Integer, how many checkpoints to keep. Those of steps above
            `step` are left alone. Defaults to `3`.
        optimizers: Optimizers that train the model, beside those that are
            attributes of it. Give them to `restore`, too.
        average_statistics: Boolean. If `True`, the moving statistics of each
            `keras.layers.BatchNormalization` are saved as those of the data
            of all ranks together: the mean of the means, and the mean of the
            variances plus the variance of the means. The model keeps its own.
            Defaults to `False`.
        asynchronous: Boolean. If `True`, rank 0 copies the state and writes
            it in another thread, while all ranks go on. The checkpoint is
            there when the next call of `save`, `restore` or `wait` returns,
            or the program has ended. Defaults to `False`.
        copy_dir: Path of a second directory, to which the checkpoint is
            copied when it is on the disk: on another disk, say, where the
            first is lost with its host. It keeps as many. Defaults to `None`.

    Raises:
        ValueError: If an argument is wrong, or the model is not built.
        CheckpointError: On all ranks, with rank 0's cause in it, if rank 0
            could not write: this one, or the last one that was asynchronous.

    Example:
    ```python
    for step in range(start, 10_000):
        train_step(next(batches))
        if step % 1000 == 999:
            kr.checkpoint.save(model, "checkpoints", step + 1)
    ```
    """
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

    All ranks must call it. It does nothing if there is none. At the end of a
    program it tells what went wrong with the last one; without it, rank 0
    still waits before it ends, but nobody learns that it could not write.

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

    All ranks must call it; rank 0 reads, and shares what it has read, so that
    all have the same step, weights and optimizer state. What a rank had of its
    own when the checkpoint was saved, it has again: see `save`.

    The number of ranks may be another one than that which saved. Ranks that
    were not there have what rank 0 had, and random numbers of their own, as
    `kr.broadcast_model` makes them.

    Optimizers that were used before the model was saved, and not yet since it
    was made, get their variables here.

    Files are compared with their manifest first. A checkpoint that is damaged
    is passed over for the one before, with a warning that says which file is
    wrong and how.

    Args:
        model: A `keras.Model`, built and compiled as the one that was saved.
        directory: The directory given to `save`.
        optimizers: Optimizers that train the model, beside those that are
            attributes of it: the same as given to `save`.
        fold_rank: Boolean. If `False`, all ranks have the seeds of rank 0,
            and draw the same random numbers. Defaults to `True`.
        copy_dir: Path of the second directory that `save` was given. What
            `directory` has not, or only damaged, is read from here. Defaults
            to `None`.

    Returns:
        The step of the checkpoint, or `None` if there is none, and then
        nothing is changed.

    Raises:
        ValueError: If the model is not built.
        CheckpointError: On all ranks, if there are checkpoints, but all of
            them are damaged, or if the newest good one is of another model.

    Example:
    ```python
    start = kr.checkpoint.restore(model, "checkpoints") or 0
    ```
    """
    manifest = training_state.restore(
        model,
        directory,
        optimizers=optimizers,
        fold_rank=fold_rank,
        copy_dir=copy_dir,
    )
    return None if manifest is None else int(manifest["step"])
