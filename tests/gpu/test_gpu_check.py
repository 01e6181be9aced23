"""What is run where there is a device, on the fake one."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/core/tests/cpp/cuda_collectives_test"
PARTS = (
    *("driver-facts", "processes", "runtime", "kernels"),
    *("allreduce-of-threads", "allreduce-of-processes", "nccl"),
    *("nccl-one-rank", "conformance"),
)


def _run(*command, **environment):
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with what the script runs."""
    if not BUILT.exists():
        pytest.skip("the C++ tests are not built: make test-cpp")
    folder = tmp_path_factory.mktemp("gpu") / "files"
    code, output = _run("sh", "tools/gpu_check_files.sh", str(folder))
    assert code == 0, output
    return folder


def test_all_parts_pass_on_the_fake_device(files, tmp_path):
    out = tmp_path / "out"
    code, output = _run(
        *("sh", "tools/gpu_check.sh", str(files), str(out)),
        KERAS_RING_TEST_DRIVER="fake",
    )
    assert code == 0, output
    table = output.rpartition("\n\n")[2]
    for part in PARTS:
        assert (out / f"{part}.log").exists()
        (line,) = [o for o in table.splitlines() if o.split()[:1] == [part]]
        assert line.endswith("passed"), output


def test_a_part_that_fails_is_told(files, tmp_path):
    broken = files / "device_runtime_test"
    kept = broken.read_bytes()
    broken.write_text("#!/bin/sh\necho the device is on fire\nexit 3\n")
    try:
        code, output = _run(
            *("sh", "tools/gpu_check.sh", str(files), str(tmp_path / "out")),
            KERAS_RING_TEST_DRIVER="fake",
        )
    finally:
        broken.write_bytes(kept)
    assert code == 1
    assert "the device is on fire" in output
    (line,) = [
        one for one in output.splitlines() if one.startswith("runtime  ")
    ]
    assert line.endswith("FAILED (3)")
