"""`keras_ring.core` on ranks that have NumPy and no framework."""

import sys

import pytest

from tests.harness import examples, run_ranks
from tests.multiprocess.core import rank_core
from tests.tiers import few


@pytest.mark.parametrize(
    "function",
    [
        rank_core.reductions,
        rank_core.moves,
        rank_core.objects_and_sets,
        rank_core.calls_of_rank_zero,
        rank_core.threads_with_names,
    ],
)
@pytest.mark.parametrize(
    "num_ranks, hosts",
    few([(2, None), (3, None), (3, [0, 1, 1])], "programs", 1),
)
def test_it_does_without_a_framework(function, num_ranks, hosts):
    result = run_ranks(function, num_ranks, hosts=hosts, fresh=True)
    assert result.values == [True] * num_ranks


def test_wrong_calls_are_told():
    first, second = run_ranks(rank_core.errors_are_told, 2, fresh=True).values
    wanted = {
        "text": ("TypeError", "no collective of str"),
        "complex": ("TypeError", "no Average of complex64"),
        "adasum": ("TypeError", "floating-point arrays only"),
        "scalar": ("ValueError", "Reshape it to [1]"),
        "op": ("TypeError", "Received: 'sum'"),
        "shape": ("FailedPreconditionError", "[2]"),
        "dtype": ("FailedPreconditionError", "int64"),
        "root": ("InvalidArgumentError", "17"),
        "splits": ("InvalidArgumentError", "4"),
        "code": ("", "UNAVAILABLE"),
    }
    assert first == second
    for name, (kind, text) in wanted.items():
        assert first[name][0] == kind, first[name]
        assert text in first[name][1], first[name]


def test_a_lost_rank_is_named():
    result = run_ranks(rank_core.lost, 3, fresh=True, expect={1: -9})
    for rank in (0, 2):
        text, seconds = result.values[rank]
        assert "rank 1" in text
        assert seconds < 5


def test_control_c_ends_a_wait():
    result = run_ranks(rank_core.interrupted, 2, fresh=True)
    assert result.values == [[0, 1]] * 2


_WITH_HANDLERS = """
import atexit, os, time
from keras_ring import core as kr

atexit.register(print, "registered before")
kr.init()
{later}
if kr.rank() == 1:
    os._exit(3)
kr.allreduce(1.0)
"""


@pytest.mark.parametrize("later", ["", "registered after"])
def test_exit_handlers_run_once_when_a_rank_is_lost(tmp_path, later):
    script = tmp_path / "train.py"
    script.write_text(
        _WITH_HANDLERS.format(
            later=f"atexit.register(print, {later!r})" if later else ""
        )
    )
    done = examples.run(
        *("-m", "keras_ring", "run", "-np", "2", "--", sys.executable, script)
    )
    assert "having lost rank 1" in done.stderr
    wanted = ["[0] registered after"] * bool(later) + ["[0] registered before"]
    assert done.stdout.splitlines() == wanted, done.stdout + done.stderr
