"""Saves the state of training, and goes on from it."""

from __future__ import annotations

import functools
import os
import platform
import warnings
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_ring import _checkpoint_files, _model_state, basics
from keras_ring._checkpoint_files import Checkpoint, Damaged
from keras_ring._compat import keras
from keras_ring._rank_zero import on_rank_zero
from keras_ring._version import __version__
from keras_ring.errors import CheckpointError
from keras_ring.functions import allgather_object, broadcast_variables

_STATE = "state.npz"


def save(
    model: Any, directory: str | os.PathLike[str], step: int, *, keep: int = 3
) -> None:
    """Saves the weights, the optimizer's state and the seed generators.

    All ranks must call it; rank 0 writes. When it returns, the checkpoint is
    complete and on the disk, and no rank has gone on before. A program that is
    killed while it saves leaves the checkpoints it had.

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

    Raises:
        ValueError: If an argument is wrong, or the model is not built.
        CheckpointError: On all ranks, with rank 0's cause in it, if rank 0
            could not write.

    Example:
    ```python
    for step in range(start, 10_000):
        train_step(next(batches))
        if step % 1000 == 999:
            kr.checkpoint.save(model, "checkpoints", step + 1)
    ```
    """
    save_with(model, directory, step, keep=keep)


def restore(model: Any, directory: str | os.PathLike[str]) -> int | None:
    """Gives all ranks the state of the newest checkpoint.

    All ranks must call it; rank 0 reads, and shares what it has read, so that
    all have the same step, weights, optimizer state and seed generators. The
    number of ranks may be another one than that which saved.

    Files are compared with their manifest first. A checkpoint that is damaged
    is passed over for the one before, with a warning that says which file is
    wrong and how.

    Args:
        model: A `keras.Model`, built and compiled as the one that was saved.
        directory: The directory given to `save`.

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
    manifest = restore_with(model, directory)
    return None if manifest is None else int(manifest["step"])


def save_with(
    model: Any,
    directory: str | os.PathLike[str],
    step: int,
    *,
    keep: int,
    progress: Any = None,
    with_local_state: bool = False,
) -> None:
    """Does what `save` does, and may save more.

    Args:
        model: As in `save`.
        directory: As in `save`.
        step: As in `save`.
        keep: As in `save`.
        progress: What JSON can hold; `restore_with` returns it.
        with_local_state: Boolean, whether each rank's metrics and accumulated
            gradients are saved as well.
    """
    if step < 0:
        raise ValueError(f"`step` must not be negative. Received: step={step}")
    if keep < 1:
        raise ValueError(f"`keep` must be at least 1. Received: keep={keep}")
    directory = Path(directory)
    variables = _model_state.state_variables(model)
    local: list[list[Any]] = []
    if with_local_state:
        local = allgather_object(
            _model_state.as_arrays(_model_state.local_variables(model)),
            name="checkpoint/local",
        )

    def write() -> None:
        arrays = _model_state.as_arrays(variables)
        contents = {_STATE: arrays}
        for rank, of_rank in enumerate(local):
            contents[_local_name(rank)] = of_rank
        written = _checkpoint_files.write(
            directory,
            step,
            {
                name: functools.partial(_model_state.write_arrays, content)
                for name, content in contents.items()
            },
            {
                "ranks": basics.size(),
                "versions": versions(),
                "progress": progress,
                "variables": _model_state.described(variables),
            },
        )
        later = [c for c in _checkpoint_files.find(directory) if c > written]
        if later:
            warnings.warn(
                f"{directory} has checkpoints of steps after {step}, which "
                "was just saved: "
                f"{', '.join(sorted(c.path.name for c in later))}. Restoring "
                "takes the highest step that is not damaged. Delete them if "
                "they are of another run.",
                RuntimeWarning,
                stacklevel=2,
            )
        _checkpoint_files.prune(directory, written, keep)

    on_rank_zero(
        f"write the checkpoint of step {step} to {directory}",
        write,
        "checkpoint/save",
    )


def restore_with(
    model: Any,
    directory: str | os.PathLike[str],
    read_local_state: bool = False,
) -> dict[str, Any] | None:
    """Does what `restore` does.

    Args:
        model: As in `restore`.
        directory: As in `restore`.
        read_local_state: Boolean. If `True`, the result has this rank's
            arrays, as bytes, under `"local"`, or `None` there if they were
            not saved, or by another number of ranks.

    Returns:
        The manifest, or `None` if there is no checkpoint.
    """
    directory = Path(directory)
    variables = _model_state.state_variables(model)

    def read() -> tuple[dict[str, Any], list[Any] | None] | None:
        found = _newest_good(directory)
        if found is None:
            return None
        checkpoint, manifest = found
        _model_state.require_same_variables(manifest["variables"], variables)
        _model_state.assign_bytes(
            variables, _model_state.read_bytes(checkpoint.path / _STATE)
        )
        local = None
        if read_local_state and manifest["ranks"] == basics.size():
            local = _read_local(checkpoint, manifest)
        return manifest, local

    result = on_rank_zero(
        f"restore a checkpoint from {directory}", read, "checkpoint/restore"
    )
    if result is None:
        return None
    broadcast_variables(variables, root_rank=0)
    manifest, local = result
    if read_local_state:
        manifest["local"] = local and local[basics.rank()]
    return manifest


def remove_all(directory: str | os.PathLike[str]) -> None:
    """Deletes all checkpoints of a directory, and it, if it is empty then.

    All ranks must call it.

    Args:
        directory: The directory given to `save`.
    """
    directory = Path(directory)

    def remove() -> None:
        for checkpoint in _checkpoint_files.find(directory):
            _checkpoint_files.delete(checkpoint)
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()

    on_rank_zero(
        f"delete the checkpoints of {directory}", remove, "checkpoint/remove"
    )


def _newest_good(directory: Path) -> tuple[Checkpoint, dict[str, Any]] | None:
    problems = []
    for checkpoint in _checkpoint_files.find(directory):
        try:
            manifest = _checkpoint_files.read_manifest(checkpoint)
        except Damaged as damaged:
            problems.append(str(damaged))
            continue
        for problem in problems:
            warnings.warn(
                f"A checkpoint is damaged: {problem}. Going back to step "
                f"{checkpoint.step}.",
                RuntimeWarning,
                stacklevel=2,
            )
        return checkpoint, manifest
    if problems:
        raise CheckpointError(
            "all checkpoints are damaged: " + "; ".join(problems)
        )
    return None


def _local_name(rank: int) -> str:
    return f"rank-{rank}.npz"


def _read_local(
    checkpoint: Checkpoint, manifest: dict[str, Any]
) -> list[Any] | None:
    names = [_local_name(rank) for rank in range(basics.size())]
    if not all(name in manifest["files"] for name in names):
        return None
    return [_model_state.read_bytes(checkpoint.path / name) for name in names]


def versions() -> dict[str, str]:
    """Returns the versions of what makes checkpoints, for manifests."""
    return {
        "keras_ring": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "python": platform.python_version(),
    }
