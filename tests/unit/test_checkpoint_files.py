"""Checkpoints as files: whole or not there, whatever happens."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import kill_writer
import numpy as np
import pytest

from keras_ring.keras.checkpoint import checkpoint_files as files
from tests import tiers

KILLS = tiers.amount(10 if tiers.pulled("saves") else 4, 50)


def write(directory, step, content=b"content", **more):
    return files.write(
        directory,
        step,
        {"a.bin": lambda file: file.write(content)},
        {"ranks": 2, **more},
    )


def steps(directory):
    return [(c.step, c.attempt) for c in files.find(directory)]


def test_what_is_written(tmp_path):
    checkpoint = write(tmp_path / "new" / "dir", 12, progress={"epoch": 3})
    assert checkpoint.path.name == "step-00000012"
    assert sorted(p.name for p in checkpoint.path.iterdir()) == [
        "a.bin",
        "manifest.json",
    ]
    manifest = files.read_manifest(checkpoint)
    assert manifest == json.loads(
        (checkpoint.path / "manifest.json").read_text()
    )
    assert manifest["step"] == 12
    assert manifest["ranks"] == 2
    assert manifest["progress"] == {"epoch": 3}
    assert manifest["files"]["a.bin"] == {
        "bytes": 7,
        # Of the word "content".
        "sha256": "ed7002b439e9ac845f22357d822bac14"
        "44730fbdb6016d3ec9432297b9ec9f73",
    }


def test_order_and_pruning(tmp_path):
    assert files.find(tmp_path / "nowhere") == []
    for step in (5, 100, 7, 7):
        newest = write(tmp_path, step)
    assert steps(tmp_path) == [(100, 1), (7, 2), (7, 1), (5, 1)]
    files.prune(tmp_path, newest, keep=2)
    # 100 is later than what was written; of 7, the last attempt stays.
    assert steps(tmp_path) == [(100, 1), (7, 2), (5, 1)]
    newest = write(tmp_path, 8)
    files.prune(tmp_path, newest, keep=1)
    assert steps(tmp_path) == [(100, 1), (8, 1)]
    assert sorted(os.listdir(tmp_path)) == ["step-00000008", "step-00000100"]


def test_a_copy(tmp_path):
    first = write(tmp_path / "first", 3, content=b"of step 3")
    copy = files.copy(first, tmp_path / "second")
    assert copy.path == tmp_path / "second" / "step-00000003"
    assert files.read_manifest(copy) == files.read_manifest(first)
    assert (copy.path / "a.bin").read_bytes() == b"of step 3"
    # Of a step that is there already, a second one.
    assert files.copy(first, tmp_path / "second").attempt == 2
    (first.path / "a.bin").write_bytes(b"of step 4")
    with pytest.raises(files.Damaged, match="SHA-256"):
        files.copy(first, tmp_path / "third")
    assert list((tmp_path / "third").iterdir()) == []


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    write(tmp_path, 1)

    def fail(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        files.write(tmp_path, 2, {"a.bin": fail}, {})
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_what_a_killed_program_left_is_swept(tmp_path):
    (tmp_path / ".writing-3-abc").mkdir()
    (tmp_path / ".writing-3-abc" / "a.bin").write_bytes(b"half")
    (tmp_path / ".deleting-step-00000001-abc").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-00000009").write_text("a file of that name")
    write(tmp_path, 4)
    assert sorted(os.listdir(tmp_path)) == [
        "notes.txt",
        "step-00000004",
        "step-00000009",
    ]
    assert steps(tmp_path) == [(4, 1)]


def truncate(path):
    (path / "a.bin").write_bytes(b"conte")


def flip(path):
    (path / "a.bin").write_bytes(b"c0ntent")


def remove(path):
    (path / "a.bin").unlink()


def remove_manifest(path):
    (path / "manifest.json").unlink()


def cut_manifest(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text[: len(text) // 2])


def list_manifest(path):
    (path / "manifest.json").write_text("[]")


def rename(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"step": 1', '"step": 2'))


def later_format(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(
        text.replace('"format": 1', '"format": 9')
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "a.bin has 5 bytes, and its manifest says 7"),
        (flip, "a.bin has the SHA-256 .*, and its manifest says ed7002"),
        (remove, "No such file.*a.bin"),
        (remove_manifest, "No such file.*manifest.json"),
        (cut_manifest, "manifest.json is not a manifest"),
        (list_manifest, "manifest.json is not a manifest"),
        (rename, "manifest.json is the manifest of step 2"),
        (later_format, "has format 9, and this version .* format 1"),
    ],
)
def test_damage_is_named(tmp_path, damage, message):
    checkpoint = write(tmp_path, 1)
    damage(checkpoint.path)
    with pytest.raises(files.Damaged, match=message):
        files.read_manifest(checkpoint)


def test_nothing_shows_before_it_is_on_the_disk(tmp_path, monkeypatch):
    """The order of what is synced and renamed."""
    done = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        done.append(("fsync", path.rpartition("/")[2].partition("-")[0]))
        fsync(descriptor)

    def watched_rename(self, target):
        done.append(("rename", Path(target).name))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    write(tmp_path, 1)
    assert done == [
        ("fsync", "a.bin"),
        ("fsync", "manifest.json"),
        ("fsync", ".writing"),
        ("rename", "step-00000001"),
        ("fsync", tmp_path.name.partition("-")[0]),
    ]


@pytest.mark.gate  # starts TensorFlow several times
@pytest.mark.longer("saves")
def test_killed_at_a_random_moment(tmp_path):
    """After each kill the newest checkpoint is whole, and none was lost."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    in_the_middle = 0
    seconds_of_a_save = 0.0
    for kill in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, kill_writer.__file__, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert process.stdout.readline() == b"ready\n"
            if kill == 0:
                before = time.monotonic()
                first = process.stdout.readline()
                seconds_of_a_save = time.monotonic() - before
            else:
                first = b""
                time.sleep(rng.uniform(0.0, 3.0 * seconds_of_a_save))
            process.send_signal(signal.SIGKILL)
            said = (first + process.stdout.read()).split()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        left = os.listdir(tmp_path) if tmp_path.exists() else []
        in_the_middle += any(name.startswith(".") for name in left)
        found = files.find(tmp_path)
        # Whatever the writer said was saved is there, or a later one.
        if said:
            assert found, f"seed {seed}, kill {kill}"
            assert found[0].step >= int(said[-1]), f"seed {seed}, kill {kill}"
        for checkpoint in found:
            files.read_manifest(checkpoint)
            for name, array in kill_writer.contents(checkpoint.step).items():
                np.testing.assert_array_equal(
                    np.load(checkpoint.path / name), array
                )
    assert files.find(tmp_path)
    print(f"{KILLS} of {KILLS} restorable, {in_the_middle} in the middle")
    assert in_the_middle, "no kill hit a save: the test shows nothing"
