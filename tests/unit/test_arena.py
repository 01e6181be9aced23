"""Whether TensorFlow's allocator is ours, and what happens if it cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from keras_ring import errors
from keras_ring.core import arena, native
from tests.tiers import few

MAPPED = "keras_ring tensors"
RANK = {
    "KERAS_RING_RANK": "0",
    "KERAS_RING_SIZE": "2",
    "KERAS_RING_RENDEZVOUS": "127.0.0.1:1",
    "KERAS_RING_JOB_KEY": "00" * 32,
    "KERAS_RING_ZERO_COPY": "1",
}
PROGRAM = """
import keras_ring, tensorflow as tf
tensor = tf.ones([1 << 20])
print(open("/proc/self/maps").read())
"""


@pytest.mark.gate
@pytest.mark.parametrize(
    ("change", "mapped"),
    few(
        [
            ({}, True),
            # Without a launcher.
            (dict.fromkeys(RANK), False),
            ({"KERAS_RING_ZERO_COPY": "0"}, False),
            ({"KERAS_RING_SIZE": "1"}, False),
        ],
        "stress",
        keep=2,
    ),
)
def test_only_ranks_of_a_job_have_an_arena(change, mapped):
    environment = {**os.environ, **RANK, **change}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={k: v for k, v in environment.items() if v is not None},
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (MAPPED in done.stdout) == mapped


class Core:
    """A native module that wants an arena."""

    def zero_copy_ranks(self, job_size):
        return 2


def test_a_library_that_does_not_load_is_a_reason(monkeypatch):
    def install(kind, version, num_ranks):
        assert (kind, version, num_ranks) == ("arena", tf.__version__, 2)
        raise OSError("no such file")

    monkeypatch.setattr(native, "core", Core)
    monkeypatch.setattr(native, "install_arena", install)
    monkeypatch.setattr(arena, "_refusal", "")
    arena._install()
    assert arena.refusal() == "its allocator cannot be loaded: no such file"


def test_a_package_that_is_not_built_does_not_break_tensorflow(monkeypatch):
    def core():
        raise errors.BuildMismatchError("not built")

    monkeypatch.setattr(native, "core", core)
    monkeypatch.setattr(arena, "_refusal", "")
    arena._install()
    assert arena.refusal() == ""


def test_the_remedy_is_one_for_the_reason(monkeypatch):
    source = Path(arena.__file__).parents[2] / "tf_ops/arena_allocator.cc"
    assert f'"{arena._TOO_LATE}"' in source.read_text()
    monkeypatch.setattr(arena, "_refusal", arena._TOO_LATE)
    assert "import keras_ring before" in arena.remedy()
    monkeypatch.setattr(arena, "_refusal", "cannot set aside 2 GiB")
    assert "import" not in arena.remedy()
    assert "ulimit" in arena.remedy()
