"""The checkpoints of one directory, as files, without a model or ranks.

A checkpoint is a folder `step-00000120`. If a step is written again, its name
gets a number (`.2`). The folder holds files and a manifest with their names,
sizes and SHA-256.

The folder gets its name by one rename, after everything in it has reached the
disk, and loses it by one rename, before anything in it is deleted. So whenever
the program ends, a folder of that name is complete. The manifest shows whether
it was damaged later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MANIFEST = "manifest.json"
FORMAT = 1

_NAME = re.compile(r"step-([0-9]{8,})(?:\.([0-9]+))?")
# File names that a manifest may have: no paths into other folders.
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_WRITING = ".writing-"
_DELETING = ".deleting-"
_BLOCK = 1 << 20
_MAX_MANIFEST = 64 << 20  # bytes


@dataclasses.dataclass(frozen=True, order=True)
class Checkpoint:
    """A folder that has the name of a checkpoint."""

    step: int
    attempt: int
    path: Path


class Damaged(Exception):
    """A checkpoint differs from its manifest."""


def find(directory: Path) -> list[Checkpoint]:
    """Returns the checkpoints of a directory, the newest first."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and path.is_dir():
                attempt = int(match[2] or 1)
                found.append(Checkpoint(int(match[1]), attempt, path))
    return sorted(found, reverse=True)


def write(
    directory: Path,
    step: int,
    files: Mapping[str, Callable[[BinaryIO], None]],
    description: Mapping[str, Any],
) -> Checkpoint:
    """Writes a checkpoint. If that fails, no part of it is taken for one.

    Args:
        directory: Path of the directory, which is made if it does not exist.
        step: Integer, at least 0.
        files: Function that writes the file, by file name.
        description: Further entries of the manifest.

    Returns:
        The checkpoint.

    Raises:
        OSError: If the disk is full, read-only and so on.
    """

    def fill(folder: Path) -> None:
        written = {}
        for name, write_file in files.items():
            with durably(folder / name) as file:
                write_file(file)
            written[name] = described(folder / name)
        manifest = {
            "format": FORMAT,
            "step": step,
            **description,
            "files": written,
        }
        with durably(folder / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1).encode())

    return _appear(directory, step, fill)


def copy(checkpoint: Checkpoint, directory: Path) -> Checkpoint:
    """Copies a checkpoint to another directory, as `write` writes it.

    Args:
        checkpoint: The checkpoint to copy.
        directory: Path of the directory of copies, which is made if it does
            not exist.

    Returns:
        The copy, whose files were compared with the manifest.

    Raises:
        OSError: If the copy cannot be written.
        Damaged: If the copy differs from the manifest.
    """

    def fill(folder: Path) -> None:
        for path in sorted(checkpoint.path.iterdir()):
            with path.open("rb") as source, durably(folder / path.name) as file:
                shutil.copyfileobj(source, file, _BLOCK)
        read_manifest(dataclasses.replace(checkpoint, path=folder))

    return _appear(directory, checkpoint.step, fill)


def _appear(
    directory: Path, step: int, fill: Callable[[Path], None]
) -> Checkpoint:
    """Makes a folder, fills it, and renames it to its final name."""
    directory.mkdir(parents=True, exist_ok=True)
    _sweep(directory)
    folder = directory / f"{_WRITING}{step}-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        fill(folder)
        sync_directory(folder)
        attempts = [c.attempt for c in find(directory) if c.step == step]
        attempt = max(attempts, default=0) + 1
        suffix = f".{attempt}" if attempt > 1 else ""
        path = directory / f"step-{step:08d}{suffix}"
        folder.rename(path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_directory(directory)
    return Checkpoint(step, attempt, path)


def prune(directory: Path, newest: Checkpoint, keep: int) -> None:
    """Deletes checkpoints older than the `keep` last ones.

    Checkpoints of steps after `newest` are neither counted nor deleted: they
    belong to another run or are damaged, and `newest` must be kept.

    Args:
        directory: Path of the directory of the checkpoints.
        newest: The checkpoint that was just written.
        keep: Integer, at least 1.
    """
    kept: set[int] = set()
    for checkpoint in find(directory):
        if checkpoint.step > newest.step:
            continue
        if checkpoint.step not in kept and len(kept) < keep:
            kept.add(checkpoint.step)
        else:
            delete(checkpoint)
    sync_directory(directory)


def delete(checkpoint: Checkpoint) -> None:
    """Deletes a checkpoint."""
    path = checkpoint.path
    gone = path.with_name(f"{_DELETING}{path.name}-{uuid.uuid4().hex}")
    path.rename(gone)
    shutil.rmtree(gone)


def read_manifest(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the manifest, after comparing all files with it.

    Raises:
        Damaged: If a file is missing or differs from the manifest; the text
            names the file and what is wrong with it.
    """
    path = checkpoint.path / MANIFEST
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_MANIFEST + 1)
        if len(text) > _MAX_MANIFEST:
            raise Damaged(f"{path} is not a manifest: it is too long")
        manifest: dict[str, Any] = json.loads(text)
        files = manifest["files"]
        form, step = manifest["format"], manifest["step"]
        expected = {
            name: (of["bytes"], of["sha256"]) for name, of in files.items()
        }
    except OSError as error:
        raise Damaged(f"{path}: {error}") from error
    # RecursionError: the JSON is nested too deeply.
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise Damaged(f"{path} is not a manifest: {error!r}") from error
    if form != FORMAT:
        raise Damaged(
            f"{path} has format {form}, and this version of keras_ring reads "
            f"format {FORMAT}"
        )
    if step != checkpoint.step:
        raise Damaged(f"{path} is the manifest of step {step}")
    for name, (size, checksum) in expected.items():
        if not _FILE.fullmatch(name):
            raise Damaged(f"{path} names {name!r}, which is no file beside it")
        _compare(checkpoint.path / name, size, checksum)
    return manifest


def _compare(path: Path, size: object, checksum: object) -> None:
    try:
        found_size = path.stat().st_size
        if found_size != size:
            raise Damaged(
                f"{path} has {found_size} bytes, and its manifest says {size}"
            )
        found = _sha256(path)
    except OSError as error:
        raise Damaged(f"{path}: {error}") from error
    if found != checksum:
        raise Damaged(
            f"{path} has the SHA-256 {found}, and its manifest says {checksum}"
        )


def described(path: Path) -> dict[str, int | str]:
    """Returns the size and SHA-256 of a file, as manifests have them."""
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    checksum = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum.update(block)
    return checksum.hexdigest()


@contextlib.contextmanager
def durably(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing, and syncs it to the disk at the end."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Syncs a directory, so that the names in it are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(directory: Path) -> None:
    """Deletes the unfinished folders that a killed program has left."""
    for path in directory.iterdir():
        if path.name.startswith((_WRITING, _DELETING)):
            shutil.rmtree(path, ignore_errors=True)
