"""The checkpoints of one directory, as files. Knows no model and no ranks.

A checkpoint is a folder `step-00000120`, with a number behind it (`.2`) where
a step was written again. In it are files and a manifest that names them with
their sizes and SHA-256.

It appears by one rename, after everything in it has reached the disk; it goes
by one rename, before anything in it is deleted. So whenever the program ends,
a folder of that name is complete. Where it is not, because the disk or a
person damaged it, the manifest tells.
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
# What a manifest may name: nothing in other folders.
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
    """A checkpoint is not what its manifest says."""


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
    """Writes a checkpoint: all of it, or nothing that looks like one.

    Args:
        directory: Where checkpoints are; made if it is not there.
        step: Integer, at least 0.
        files: What writes each file, by name.
        description: What else the manifest says.

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
    """Copies a checkpoint to another directory: all of it, or nothing.

    Args:
        checkpoint: One that was written.
        directory: Where copies are; made if it is not there.

    Returns:
        The copy, whose files were compared with the manifest.

    Raises:
        OSError: If it cannot be written.
        Damaged: If the copy is not what the manifest says.
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
    """Makes a folder, has it filled, and gives it its name at the end."""
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

    Those of steps after `newest` are not counted, nor deleted: they are of
    another run, or damaged, and `newest` must not go because of them.

    Args:
        directory: Where checkpoints are.
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
        Damaged: If a file is missing, or not as the manifest says; the text
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
    # Nested too deeply, among others.
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
    """Opens a file to write to; what was written is on the disk at the end."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Has the names in a directory reach the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(directory: Path) -> None:
    """Deletes what a program that was killed has left behind."""
    for path in directory.iterdir():
        if path.name.startswith((_WRITING, _DELETING)):
            shutil.rmtree(path, ignore_errors=True)
