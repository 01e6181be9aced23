"""A file and its manifest: whenever a program ends, the file is whole."""

import json
import os

import pytest

from keras_ring.keras.checkpoint import saved_files as files
from keras_ring.keras.checkpoint.checkpoint_files import Damaged, described


def save(path, content, at=(0, 1), template="{epoch}.bin"):
    part = path.with_name(f".writing-{path.name}")
    part.write_bytes(content)
    files.replace(path, part, {"template": template, "at": list(at)})


def test_the_manifest(tmp_path):
    path = tmp_path / "a.bin"
    save(path, b"content", at=(3, 0))
    assert path.read_bytes() == b"content"
    assert json.loads((tmp_path / "a.bin.manifest.json").read_text()) == {
        "format": 1,
        "template": "{epoch}.bin",
        "at": [3, 0],
        "files": [
            {
                "bytes": 7,
                # Of the word "content".
                "sha256": "ed7002b439e9ac845f22357d822bac14"
                "44730fbdb6016d3ec9432297b9ec9f73",
            }
        ],
    }
    files.require_whole(path)
    assert len(os.listdir(tmp_path)) == 2


class Ended(BaseException):
    """Stands for the end of the program."""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("at", range(20))
def test_a_program_that_ends_at_any_call(tmp_path, monkeypatch, at, times):
    """Before each sync and each rename; more than once, before it succeeds."""
    path = tmp_path / "a.bin"
    save(path, b"old")
    calls = 0

    def ends(function):
        def called(*arguments, **settings):
            nonlocal calls
            calls += 1
            if calls > at:
                # Nothing more happens, nor does any cleaning up.
                raise Ended
            return function(*arguments, **settings)

        return called

    for content in (b"new", b"newer")[:times]:
        calls = 0
        with monkeypatch.context() as patched:
            for owner, name in (
                (os, "fsync"),
                (type(path), "replace"),
                (type(path), "unlink"),
            ):
                patched.setattr(owner, name, ends(getattr(owner, name)))
            try:
                save(path, content)
            except Ended:
                pass
        assert path.read_bytes() in (b"old", b"new", b"newer")
        files.require_whole(path)
        manifest = json.loads(files.manifest_path(path).read_text())
        assert described(path) in manifest["files"]
    save(path, b"last")
    files.require_whole(path)
    assert path.read_bytes() == b"last"
    manifest = json.loads(files.manifest_path(path).read_text())
    assert [each["bytes"] for each in manifest["files"]] == [4]


def unchanged_time(path, content):
    """Changes a file as a disk that fails does."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before, before))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"conte", "a.bin has 5 bytes with SHA-256 .* says 7 bytes"),
        (b"c0ntent", "a.bin has 7 bytes with SHA-256 .* 7 bytes .* ed7002"),
    ],
)
def test_damage(tmp_path, content, message):
    path = tmp_path / "a.bin"
    save(path, b"content")
    unchanged_time(path, content)
    with pytest.raises(Damaged, match=message):
        files.require_whole(path)


def test_files_of_somebody_else(tmp_path):
    path = tmp_path / "a.bin"
    files.require_whole(path)
    path.write_bytes(b"alone")
    files.require_whole(path)
    save(path, b"content")
    written = files.manifest_path(path).stat().st_mtime_ns
    path.write_bytes(b"by somebody else, later")
    os.utime(path, ns=(written + 1, written + 1))
    files.require_whole(path)
    for text in ("[]", "{", '{"format": 9}'):
        files.manifest_path(path).write_text(text)
        files.require_whole(path)


def test_pruning(tmp_path):
    other = tmp_path / "best.bin"
    save(other, b"best", at=(1, 0), template="best.bin")
    for number, at in enumerate([(9, 0), (1, 0), (1, 5), (2, 0), (3, 0)]):
        save(tmp_path / f"{number}.bin", b"content", at)
    (tmp_path / "notes.manifest.json").write_text("mine")
    # One that a program which was killed had begun to delete.
    (tmp_path / "2.bin").unlink()
    files.prune(tmp_path / "4.bin", keep=2)
    left = sorted(p.name for p in tmp_path.glob("*.bin"))
    # The first is of a later epoch, hence of another run.
    assert left == ["0.bin", "3.bin", "4.bin", "best.bin"]
    assert sorted(p.name for p in tmp_path.glob("*.json")) == sorted(
        [*(f"{name}.manifest.json" for name in left), "notes.manifest.json"]
    )
