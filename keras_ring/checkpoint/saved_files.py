"""Files that are replaced while a program runs, each with a manifest beside it.

The manifest of `best.keras` is `best.keras.manifest.json`, with the size and
SHA-256 of the file. Two files cannot be renamed at once: while a file is
replaced, its manifest describes both the old one and the new one, so whichever
is there when the program ends is known to be whole.

Knows no model and no ranks.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_ring.checkpoint.checkpoint_files import (
    Damaged,
    described,
    durably,
    sync_directory,
)

SUFFIX = ".manifest.json"
FORMAT = 1

# Of a file system that cannot tell.
_NOT_KNOWN = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV)


def manifest_path(path: Path) -> Path:
    """Returns the path of the manifest of a file."""
    return path.with_name(path.name + SUFFIX)


def require_room(part: Path, num_bytes: int) -> None:
    """Makes a file of a size, to see whether the disk takes it.

    For what is written by HDF5, which ends the process (a segmentation fault)
    some time after it could not write.

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
    """Has a file appear under its name, with its manifest.

    Args:
        path: Where the file is to be, and may be already.
        part: The file, written, in the same folder. It is not there
            afterwards.
        description: What else the manifest says.

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

    A file that was changed after its manifest was written is somebody else's,
    who needs no manifest.

    Raises:
        Damaged: If they differ, with a text that says how.
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
    """Deletes files of the kind of `newest`, but for the `keep` last ones.

    Files are of one kind if their manifests have the same `"template"`, and in
    the order of their `"at"`. Those after `newest` are not counted, nor
    deleted: they are of another run.

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
        # A manifest that is left over is deleted the next time.
        path.unlink(missing_ok=True)
        manifest_path(path).unlink(missing_ok=True)
    sync_directory(newest.parent)


def _read(path: Path) -> dict[str, Any] | None:
    """Returns the manifest of a file; `None` if there is none of ours."""
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
