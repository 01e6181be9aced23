"""Tensors that the ranks of a host read from each other where they lie."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import run_ranks
from tests.multiprocess.zero_copy import rank_zero_copy
from tests.tiers import few

ON = {"KERAS_RING_ZERO_COPY": "1"}
PROGRAM = Path(__file__).with_name("import_orders.py")


@pytest.mark.parametrize("size", [2, 3])
def test_sums_are_right_and_large_tensors_are_not_packed(size):
    result = run_ranks(rank_zero_copy.sums, size, deadline=120, env=ON)
    for packed, in_use in result.values:
        assert packed == 0
        assert in_use > 1 << 22


def test_tensors_are_not_packed_by_default(monkeypatch):
    monkeypatch.delenv("KERAS_RING_ZERO_COPY", raising=False)
    for packed, in_use in run_ranks(
        rank_zero_copy.sums, 2, deadline=120
    ).values:
        assert packed == 0
        assert in_use > 1 << 22


def test_without_it_tensors_are_packed():
    result = run_ranks(
        rank_zero_copy.sums, 2, deadline=120, env={"KERAS_RING_ZERO_COPY": "0"}
    )
    for packed, in_use in result.values:
        assert packed > 0
        assert in_use == 0


def test_memory_stays_flat():
    result = run_ranks(
        rank_zero_copy.memory, 2, args=(600,), deadline=180, env=ON
    )
    for early, late in result.values:
        assert 0 < late <= 1.25 * early


def test_a_forked_child_has_tensors_of_its_own():
    result = run_ranks(rank_zero_copy.fork, 2, deadline=120, env=ON)
    assert result.values == [0, 0]


def imported(order):
    command = [sys.executable, "-m", "keras_ring"]
    command += [
        "run",
        "-np",
        "2",
        "--no-fold",
        "--",
        sys.executable,
        str(PROGRAM),
        order,
    ]
    return subprocess.run(
        command,
        env={**os.environ, **ON},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "order",
    few(
        [
            "tensorflow,keras_ring",
            "keras_ring,keras",
            "keras,keras_ring",
            "keras_ring,tensorflow",
            "tensorflow,config,function,keras_ring",
        ],
        "stress",
        keep=1,
    ),
)
def test_any_order_of_imports_will_do(order):
    ended = imported(order)
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "arena" in line]
    assert len(lines) == 2, ended.stdout
    for line in lines:
        assert line.endswith(f"arena {1 << 22} SourceFileLoader"), line


@pytest.mark.parametrize(
    "first",
    few(
        [
            "keras,model",
            "tensorflow,tensor",
            "tensorflow,session",
            "tensorflow,devices",
            "tensorflow,data",
        ],
        "stress",
    ),
)
def test_too_late_is_said_and_tensors_are_copied(first):
    ended = imported(f"{first},keras_ring")
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "arena" in line]
    assert [line.split("arena ")[1].split()[0] for line in lines] == ["0", "0"]
    output = ended.stdout + ended.stderr
    # Once per rank.
    assert output.count("TensorFlow has made tensors already") == 2
