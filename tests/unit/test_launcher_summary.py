import itertools
import signal

import pytest

from keras_ring.launch.summary import (
    RankEnd,
    failure_lines,
    first_failure,
    job_exit_code,
)
from keras_ring.protocol.error_file import RankError

KILL, TERM = -signal.SIGKILL, -signal.SIGTERM


def _end(
    rank,
    code,
    seen,
    error=None,
    at=0.0,
    stopped=False,
    chain=(),
    text="text",
    caught=False,
    left_behind=False,
):
    noted = RankError(error, text, at, tuple(chain), caught=caught)
    return RankEnd(
        rank=rank,
        pid=100 + rank,
        returncode=code,
        seen=seen,
        error=noted if error else None,
        stopped=stopped,
        left_behind=left_behind,
    )


# name -> (index of the first failure, launcher's exit code, ends)
CASES = {
    "others went on without the one that was killed": (
        None,
        0,
        [_end(0, KILL, 1.0, left_behind=True), _end(1, 0, 2.0)],
    ),
    "others went on, and failed later": (
        1,
        1,
        [
            _end(0, KILL, 1.0, left_behind=True),
            _end(1, 1, 3.0, "ValueError", 2.9),
            _end(2, 1, 3.0, "UnavailableError", 2.95),
        ],
    ),
    "the last one was killed as well": (
        1,
        137,
        [_end(0, KILL, 1.0, left_behind=True), _end(1, KILL, 2.0)],
    ),
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
    "an error that the program caught, though slower to leave": (
        1,
        3,
        [
            _end(0, 3, 1.0, "UnavailableError", 0.9, caught=True),
            _end(1, 3, 2.0, "InvalidArgumentError", 0.5, caught=True),
            _end(2, 3, 1.0),
        ],
    ),
    "one that was caught before the launcher ended the rank": (
        1,
        1,
        [
            _end(0, TERM, 4.0, "ValueError", 0.1, stopped=True, caught=True),
            _end(1, 1, 1.0, "KeyError", 0.5),
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


def test_several_that_came_to_the_same_end():
    ends = [
        _end(0, 3, 1.0),
        _end(1, KILL, 5.0, stopped=True),
        _end(2, KILL, 5.0, stopped=True),
        _end(3, TERM, 2.0),
    ]
    assert failure_lines(ends[0], ends, [], 1.0)[-2:] == [
        "ranks 1-2 were then ended by keras-ring",
        "rank 3 was killed by SIGTERM",
    ]


LOST = "the job is over: rank 2 ended with ValueError: no row 3"


def test_the_cause_comes_first_and_once():
    ends = [
        _end(0, 1, 1.2, "UnavailableError", 1.1, text=LOST),
        _end(1, 1, 1.2, "UnavailableError", 1.1, text=LOST),
        _end(2, 1, 1.0, "ValueError", 0.9, text="no row 3"),
        _end(3, 1, 1.2, "UnavailableError", 1.1, text=LOST),
        _end(4, 1, 1.3, "KeyError", 1.2),
    ]
    assert failure_lines(ends[2], ends, ["Traceback", "..."], 9.5) == [
        "rank 2 raised ValueError: no row 3",
        "rank 2 (pid 102) exited with code 1 after 9.5 s; it failed first",
        "ranks 0-1, 3 exited with code 1, having lost rank 2",
        "rank 4 exited with code 1: KeyError: text",
    ]


def test_ranks_that_raise_alike_are_one_line():
    framed = "{{function_node f}} text [Op:f]"
    ends = [
        _end(0, 1, 1.0, "ValueError", 0.9),
        _end(1, 1, 1.0, "ValueError", 0.8, text=framed),
        _end(2, 1, 1.0, "ValueError", 0.9),
    ]
    assert failure_lines(ends[1], ends, ["Traceback"], 2.0) == [
        "ranks 0-2 raised ValueError: text",
        "rank 1 (pid 101) exited with code 1 after 2.0 s; it failed first",
        "ranks 0, 2 exited with code 1",
    ]


def test_an_error_that_the_program_caught():
    ends = [
        _end(0, 3, 1.2, "UnavailableError", 1.1, text=LOST, caught=True),
        _end(2, 3, 1.2, "ValueError", 0.9, text="no row 3", caught=True),
        _end(5, 4, 1.2, "OSError", 1.0, caught=True),
    ]
    assert failure_lines(ends[1], ends, ["last"], 2.0) == [
        "rank 2 raised ValueError: no row 3, which its program caught",
        "rank 2 (pid 102) exited with code 3 after 2.0 s; it failed first",
        "last output of rank 2:",
        "  | last",
        "rank 0 exited with code 3, having lost rank 2",
        "rank 5 exited with code 4: OSError: text, which its program caught",
    ]
