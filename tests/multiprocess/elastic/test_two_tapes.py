"""A step of two tapes that ranks trace again after a loss, each for itself."""

import re
import sys

import pytest

from tests.launcher.command import Command

pytestmark = pytest.mark.timeout(180)

_LINE = re.compile(
    r"was (\d): rank (\d) of (\d), (\d+) steps, (\d+) and (\d+) updates, "
    r"digest (\w+)"
)


def test_what_is_compared_once_is_not_compared_again_after_a_loss():
    words = ("run", "--elastic", "-np", "3", "--")
    program = (sys.executable, "-m", "tests.multiprocess.elastic.two_tapes")
    # Ranks that wait for each other then end in an error.
    command = Command(*words, *program, "1:2", KERAS_RING_STALL_CHECK_TIME="3")
    done = command.wait()
    print(done.stdout, done.stderr)
    assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0
    ends = sorted(_LINE.findall(done.stdout))
    assert [end[:3] for end in ends] == [("0", "0", "2"), ("2", "1", "2")]
    ((steps, first, second, _),) = {end[3:] for end in ends}
    # The loss costs at most one step of each tape.
    for updates in (first, second):
        assert int(steps) - 1 <= int(updates) <= int(steps)
