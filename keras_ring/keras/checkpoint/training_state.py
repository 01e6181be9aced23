"""Moves the state of training of all ranks to rank 0's disk and back."""

from __future__ import annotations

import functools
import os
import platform
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy.typing as npt

from keras_ring._typing import Model, Optimizer
from keras_ring._version import __version__
from keras_ring.core import topology
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import CheckpointError
from keras_ring.keras.backends import backend
from keras_ring.keras.checkpoint import (
    background_write,
    checkpoint_files,
    rank_state,
)
from keras_ring.keras.checkpoint.checkpoint_files import Checkpoint, Damaged
from keras_ring.keras.checkpoint.rank_zero import on_rank_zero
from keras_ring.keras.lanes import compat, keras
from keras_ring.keras.model import (
    adapted_layers,
    model_optimizers,
    model_state,
    seeds,
)
from keras_ring.keras.model.variables import share

_STATE = "state.npz"


def save(
    model: Model,
    directory: str | os.PathLike[str],
    step: int,
    *,
    keep: int,
    progress: Any = None,
    with_local_state: bool = False,
    optimizers: Iterable[Optimizer] = (),
    asynchronous: bool = False,
    copy_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Implements `kr.checkpoint.save`, and can save more.

    Args:
        model: As in `kr.checkpoint.save`.
        directory: As in `kr.checkpoint.save`.
        step: As in `kr.checkpoint.save`.
        keep: As in `kr.checkpoint.save`.
        progress: Value that JSON can hold; `restore` returns it.
        with_local_state: Boolean, whether each rank's metrics and accumulated
            gradients are saved as well.
        optimizers: As in `kr.checkpoint.save`.
        asynchronous: As in `kr.checkpoint.save`.
        copy_dir: As in `kr.checkpoint.save`.
    """
    if step < 0:
        raise ValueError(f"`step` must not be negative. Received: step={step}")
    if keep < 1:
        raise ValueError(f"`keep` must be at least 1. Received: keep={keep}")
    if copy_dir is not None and Path(copy_dir) == Path(directory):
        raise ValueError(
            "`copy_dir` must be another directory than that of the "
            f"checkpoints. Received: copy_dir={str(copy_dir)!r}"
        )
    background_write.wait()
    directory = Path(directory)
    optimizers = list(optimizers)
    variables = model_state.state_variables(model, optimizers)
    local = model_state.local_variables(model) if with_local_state else []
    rank_files = rank_state.gather(
        rank_state.to_bytes(
            variables,
            model_state.owned_variables(model, optimizers),
            model_state.as_arrays(local),
        )
    )
    state: dict[str, npt.NDArray[Any]] = {}
    description = {
        "ranks": len(rank_files),
        "versions": versions(),
        "progress": progress,
        "optimizers": model_optimizers.trained_indexes(
            model, model_optimizers.optimizers_of(model, optimizers)
        ),
        "variables": model_state.described(variables),
    }

    def copy() -> None:
        state.update(model_state.numbered(model_state.as_arrays(variables)))

    def write() -> None:
        if not asynchronous:
            copy()
        files: dict[str, Callable[[BinaryIO], None]] = {
            _STATE: functools.partial(model_state.write_arrays, state)
        }
        for rank, content in enumerate(rank_files):
            files[rank_state.file_name(rank)] = functools.partial(
                _write_bytes, content
            )
        written = checkpoint_files.write(directory, step, files, description)
        later = [c for c in checkpoint_files.find(directory) if c > written]
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
        checkpoint_files.prune(directory, written, keep)
        if copy_dir is not None:
            copied = checkpoint_files.copy(written, Path(copy_dir))
            checkpoint_files.prune(Path(copy_dir), copied, keep)

    what = f"write the checkpoint of step {step} to {directory}"
    if asynchronous:
        on_rank_zero(what, copy, "checkpoint/copy")
        background_write.begin(what, write)
    else:
        on_rank_zero(what, write, "checkpoint/save")


def restore(
    model: Model,
    directory: str | os.PathLike[str],
    *,
    optimizers: Iterable[Optimizer] = (),
    fold_rank: bool = True,
    copy_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any] | None:
    """Implements `kr.checkpoint.restore`.

    Args:
        model: As in `kr.checkpoint.restore`.
        directory: As in `kr.checkpoint.restore`.
        optimizers: As in `kr.checkpoint.restore`.
        fold_rank: As in `kr.checkpoint.restore`.
        copy_dir: As in `kr.checkpoint.restore`.

    Returns:
        The manifest, or `None` if there is no checkpoint. Its entry `"local"`
        has this rank's local variables, as bytes. It is `None` if they were
        not saved, or were saved by another number of ranks.
    """
    background_write.wait()
    directories = _with_copy(directory, copy_dir)
    what = f"restore a checkpoint from {' or '.join(map(str, directories))}"
    optimizers = list(optimizers)
    # Raises an error before anything is read if the model is not built.
    model_state.state_variables(model, optimizers)
    read: tuple[Checkpoint, dict[str, Any]] | None = None

    def find() -> dict[str, Any] | None:
        nonlocal read
        read = _newest_good(directories)
        return None if read is None else read[1]

    manifest = on_rank_zero(what, find, "checkpoint/restore")
    if manifest is None:
        return None
    found = model_optimizers.optimizers_of(model, optimizers)
    model_optimizers.build_for(model, found, manifest.get("optimizers", {}))
    variables = model_state.state_variables(model, optimizers)
    rank_files = [b""] * topology.size()

    def assign() -> None:
        if read is None:
            return
        path = read[0].path
        model_state.require_same_variables(manifest["variables"], variables)
        contents = model_state.read_bytes(path / _STATE)
        model_state.assign_bytes(variables, model_state.in_order(contents))
        for rank in range(topology.size()):
            name = rank_state.file_name(rank)
            if name in manifest["files"]:
                rank_files[rank] = (path / name).read_bytes()

    on_rank_zero(what, assign, "checkpoint/restore")
    share(variables, 0, global_process_set, folded=())
    mine = rank_state.from_bytes(rank_state.scatter(rank_files))
    states = compat.seed_variables(model)
    manifest["local"] = None
    if mine is not None:
        left_out = set() if fold_rank else {id(state) for state in states}
        for index, content in mine.owned.items():
            if id(variables[index]) not in left_out:
                model_state.assign_bytes([variables[index]], [content])
        if manifest["ranks"] == topology.size():
            manifest["local"] = mine.local or None
        if fold_rank and mine.random is not None:
            backend.set_random_state(mine.random)
    elif fold_rank:
        seeds.fold(states, 0, global_process_set)
    adapted_layers.finalize(model, global_process_set)
    return manifest


def remove_all(
    directory: str | os.PathLike[str],
    copy_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Deletes all checkpoints of a directory, and the directory if empty.

    All ranks must call it.

    Args:
        directory: The directory given to `save`.
        copy_dir: The directory of copies that was given to `save`.
    """
    background_write.wait()

    def remove() -> None:
        for path in _with_copy(directory, copy_dir):
            for checkpoint in checkpoint_files.find(path):
                checkpoint_files.delete(checkpoint)
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    on_rank_zero(
        f"delete the checkpoints of {directory}", remove, "checkpoint/remove"
    )


def _with_copy(
    directory: str | os.PathLike[str],
    copy_dir: str | os.PathLike[str] | None,
) -> list[Path]:
    return [Path(directory), *([] if copy_dir is None else [Path(copy_dir)])]


def _newest_good(
    directories: list[Path],
) -> tuple[Checkpoint, dict[str, Any]] | None:
    problems = []
    found = [c for each in directories for c in checkpoint_files.find(each)]
    # The sort is stable: of one step, `directory` comes before the copies.
    found.sort(key=lambda checkpoint: checkpoint.step, reverse=True)
    for checkpoint in found:
        try:
            manifest = checkpoint_files.read_manifest(checkpoint)
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


def _write_bytes(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def versions() -> dict[str, str]:
    """Returns the versions of the packages involved, for manifests."""
    return {
        "keras_ring": __version__,
        backend.name(): backend.version(),
        "keras": keras.__version__,
        "python": platform.python_version(),
    }
