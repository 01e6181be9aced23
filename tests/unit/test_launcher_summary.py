import itertools
import signal

import pytest

from keras_ring.launcher.error_file import RankError
from keras_ring.launcher.summary import (
    RankEnd,
    failure_lines,
    first_failure,
    job_exit_code,
)

KILL, TERM = -signal.SIGKILL, -signal.SIGTERM


def _end(rank, code, seen, error=None, at=0.0, stopped=False, chain=()):
    return RankEnd(
        rank=rank,
        pid=100 + rank,
        returncode=code,
        seen=seen,
        error=error and RankError(error, "text", at, tuple(chain)),
        stopped=stopped,
    )


# name -> (index of the first failure, launcher's exit code, ends)
CASES = {
    "all well": (None, 0, [_end(0, 0, 1.0), _end(1, 0, 2.0)]),
    "earlier end first": (1, 4, [_end(0, 3, 2.0), _end(1, 4, 1.0)]),
    "signal first among those seen at once": (
        1,
        137,
        [_end(0, 1, 1.0, "ValueError", 0.9), _end(1, KILL, 1.0)],
    ),
    "lost peers leave before the one that failed": (
        2,
        5,
        [
            _end(0, 1, 1.0, "UnavailableError", 0.9),
            _end(1, 1, 1.1, "UnavailableError", 1.0),
            _end(2, 5, 2.0, "ValueError", 0.5),
        ],
    ),
    "a lost peer hidden in the cause of another error": (
        1,
        9,
        [
            _end(0, 1, 1.0, "RuntimeError", 0.9, chain=["UnavailableError"]),
            _end(1, 9, 2.0),
        ],
    ),
    "the exception noted first, though slower to leave": (
        0,
        1,
        [_end(0, 1, 2.0, "ValueError", 0.1), _end(1, 1, 1.0, "KeyError", 0.2)],
    ),
    "failed, but did not leave in time": (
        0,
        1,
        [
            _end(0, TERM, 4.0, "ValueError", 0.1, stopped=True),
            _end(1, 1, 1.0, "UnavailableError", 0.5),
        ],
    ),
    "those we ended are no failures": (
        1,
        3,
        [_end(0, KILL, 3.0, stopped=True), _end(1, 3, 1.0)],
    ),
    "nothing but lost peers": (
        1,
        1,
        [
            _end(0, 1, 1.0, "UnavailableError", 0.9),
            _end(1, 1, 1.0, "UnavailableError", 0.8),
            _end(2, KILL, 3.0, stopped=True),
        ],
    ),
    "a shell tells of its command's signal": (
        1,
        139,
        [_end(0, 1, 1.0, "ValueError", 0.5), _end(1, 139, 1.0)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_first_failure_in_any_order(name):
    rank, code, ends = CASES[name]
    for order in itertools.permutations(ends):
        first = first_failure(order)
        assert (first and first.rank) == rank
        assert job_exit_code(first) == code


def test_report_names_the_first_and_why():
    ends = [
        _end(0, 1, 1.2, "UnavailableError", 1.1),
        _end(1, KILL, 1.0),
        _end(2, KILL, 5.0, stopped=True),
    ]
    lines = failure_lines(ends[1], ends, ["one", "two"], 12.34)
    assert lines[0] == (
        "rank 1 (pid 101) was killed by SIGKILL after 12.3 s; it failed first"
    )
    assert lines[2:4] == ["  | one", "  | two"]
    assert lines[4] == "rank 0 exited with code 1: UnavailableError: text"
    assert lines[5] == "rank 2 was then ended by keras-ring"
