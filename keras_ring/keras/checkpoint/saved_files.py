"""Files that a running program replaces, each with a manifest beside it.

The manifest of `best.keras` is `best.keras.manifest.json`, with the size and
SHA-256 of the file. Two files cannot be renamed at once. So while a file is
replaced, its manifest describes both the old file and the new one, and either
of them can be verified if the program ends in between.

This module uses no model and no ranks.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_ring.keras.checkpoint.checkpoint_files import (
    Damaged,
    described,
    durably,
    sync_directory,
)

SUFFIX = ".manifest.json"
FORMAT = 1

# Error numbers of file systems without `fallocate`.
_NOT_KNOWN = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV)


def manifest_path(path: Path) -> Path:
    """Returns the path of the manifest of a file."""
    return path.with_name(path.name + SUFFIX)


def require_room(part: Path, num_bytes: int) -> None:
    """Makes a file of a given size, to check that the disk has room for it.

    Use it before HDF5 writes: after a failed write, HDF5 ends the process
    later by a segmentation fault.

    Raises:
        OSError: If the disk is full, read-only and so on.
    """
    with part.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        except OSError as error:
            if error.errno not in _NOT_KNOWN:
                raise


def replace(path: Path, part: Path, description: Mapping[str, Any]) -> None:
    """Renames a finished file to its final name, and writes its manifest.

    Args:
        path: The final path, where an old file may be.
        part: Path of the finished file, in the same folder. It does not exist
            afterwards.
        description: Further entries of the manifest.

    Raises:
        OSError: If the disk is full, read-only and so on. The old file and
            its manifest are still there.
    """
    new = described(part)
    old = _read(path)
    either = [new, *(old["files"] if old else [])]
    _write(path, {**description, "files": either})
    part.replace(path)
    _write(path, {**description, "files": [new]})
    sync_directory(path.parent)


def require_whole(path: Path) -> None:
    """Compares a file with its manifest, if there is one.

    A file that was changed after its manifest was written comes from another
    program, and is not compared.

    Raises:
        Damaged: If they differ; the text says how.
    """
    manifest = _read(path)
    if manifest is None or not path.is_file():
        return
    if path.stat().st_mtime_ns > manifest_path(path).stat().st_mtime_ns:
        return
    found = described(path)
    if found not in manifest["files"]:
        expected = " or ".join(_text(each) for each in manifest["files"])
        raise Damaged(
            f"{path} has {_text(found)}, and {manifest_path(path).name} says "
            f"{expected}"
        )


def prune(newest: Path, keep: int) -> None:
    """Deletes files of the kind of `newest`, except for the last `keep`.

    Files are of one kind if their manifests have the same `"template"`. Their
    order is that of `"at"`. Files after `newest` are neither counted nor
    deleted: they belong to another run.

    Args:
        newest: Path of the file that was written last.
        keep: Integer, at least 1.
    """
    own = _read(newest)
    if own is None:
        return
    found = []
    for beside in newest.parent.glob(f"*{SUFFIX}"):
        path = beside.with_name(beside.name.removesuffix(SUFFIX))
        manifest = _read(path)
        if manifest is None or manifest["template"] != own["template"]:
            continue
        if manifest["at"] <= own["at"]:
            found.append((manifest["at"], path))
    for _, path in sorted(found, reverse=True)[keep:]:
        # If the manifest stays behind, the next call deletes it.
        path.unlink(missing_ok=True)
        manifest_path(path).unlink(missing_ok=True)
    sync_directory(newest.parent)


def _read(path: Path) -> dict[str, Any] | None:
    """Returns the manifest of a file, or `None` if there is no valid one."""
    try:
        manifest = json.loads(manifest_path(path).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    ours = isinstance(manifest, dict) and manifest.get("format") == FORMAT
    return manifest if ours else None


def _write(path: Path, manifest: Mapping[str, Any]) -> None:
    final = manifest_path(path)
    part = final.with_name(f".writing-{final.name}")
    try:
        with durably(part) as file:
            file.write(json.dumps({"format": FORMAT, **manifest}).encode())
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)


def _text(description: Mapping[str, object]) -> str:
    return f"{description['bytes']} bytes with SHA-256 {description['sha256']}"
