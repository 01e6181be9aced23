"""Steps that were traced before a loss compute with the ranks that are left."""

import re
import sys

import pytest

from tests.launcher.command import Command
from tests.multiprocess.elastic.sizes import RANKS

pytestmark = pytest.mark.timeout(180)

_LINE = re.compile(r"was (\d): rank (\d) of (\d); (.+)")


@pytest.mark.parametrize(
    ("how", "victim", "names"),
    [
        ("fit", 2, "weighted"),
        (
            "tape",
            0,
            "Average Product Adasum allgather reducescatter broadcast alltoall "
            "local",
        ),
        ("parts", 1, "rows share factor own-factor all-rows"),
    ],
    ids=["fit", "tape", "parts"],
)
def test_a_traced_step_counts_the_ranks_that_are_left(how, victim, names):
    words = ("run", "--elastic", "-np", str(RANKS), "--")
    program = (sys.executable, "-m", "tests.multiprocess.elastic.sizes")
    command = Command(*words, *program, how, str(victim))
    done = command.wait()
    print(done.stdout, done.stderr)
    assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0
    ends = sorted(_LINE.findall(done.stdout))
    left = [str(rank) for rank in range(RANKS) if rank != victim]
    assert [was for was, *_ in ends] == left
    for position, (_, rank, size, errors) in enumerate(ends):
        assert (int(rank), int(size)) == (position, RANKS - 1)
        by_name = dict(each.rsplit(" ", 1) for each in errors.split(", "))
        assert list(by_name) == names.split()
        # Keras computes with the data of `fit` in float32.
        assert all(float(error) < 1e-5 for error in by_name.values())
