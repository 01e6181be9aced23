import itertools

from hypothesis import given
from hypothesis import strategies as st

from keras_ring.launch import tensorflow_lines
from keras_ring.launch.line_collapsing import Folding


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def _folding(num_ranks, **options):
    shown = []
    clock = Clock()
    folding = Folding(
        num_ranks,
        lambda line, ranks: shown.append((line, sorted(ranks))),
        clock=clock,
        **options,
    )
    return folding, shown, clock


def test_a_line_of_all_ranks_is_shown_once_and_at_once():
    folding, shown, _ = _folding(3)
    for rank in range(3):
        assert shown == []
        folding.add(rank, b"same")
    assert shown == [(b"same", [0, 1, 2])]
    assert folding.deadline is None


def test_a_line_of_some_ranks_waits_for_a_moment():
    folding, shown, clock = _folding(4)
    folding.add(3, b"same")
    folding.add(1, b"same")
    clock.now = 0.2
    folding.add(0, b"other")
    folding.show_due()
    assert shown == []
    clock.now = folding.deadline
    folding.show_due()
    assert shown == [(b"same", [1, 3])]
    folding.show_all()
    assert shown[1:] == [(b"other", [0])]


def test_what_a_rank_prints_elsewhere_comes_after():
    folding, shown, _ = _folding(2)
    folding.add(0, b"first")
    folding.add(1, b"second")
    folding.show_until(1)
    assert shown == [(b"first", [0]), (b"second", [1])]
    folding.show_until(0)


def test_one_rank_does_not_wait():
    folding, shown, _ = _folding(1)
    folding.add(0, b"a")
    folding.add(0, b"a")
    assert shown == [(b"a", [0])] * 2


def test_a_flood_is_not_held_back():
    folding, shown, _ = _folding(2)
    for number in range(5000):
        folding.add(0, b"%d" % number)
    assert len(shown) > 3900


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"b", b"c"])),
        max_size=40,
    )
)
def test_each_rank_keeps_its_lines_in_their_order(printed):
    folding, shown, _ = _folding(3)
    for rank, line in printed:
        folding.add(rank, line)
    folding.show_all()
    for rank in range(3):
        mine = [line for who, line in printed if who == rank]
        assert [line for line, ranks in shown if rank in ranks] == mine


ONE_DNN = b"oneDNN custom operations are on."
INFO = b"I0000 00:00:1795354298.905467   19947 port.cc:153] " + ONE_DNN
DATED = (
    b"2026-11-22 13:22:24.123456: I tensorflow/core/util/port.cc:113] "
    + ONE_DNN
)
ERROR = b"E0000 00:00:1795354305.2275   19947 cuda_platform.cc:52] failed call"
PYTHON = b"I1122 13:22:24.905467 140735 train.py:153] epoch 1"


def test_which_lines_of_tensorflow_are_shown():
    lines = [
        b"WARNING: All log messages before absl::InitializeLog() is called are "
        b"written to STDERR",
        INFO,
        DATED,
        b"W" + INFO[1:],
        ERROR,
        b"F" + ERROR[1:],
        PYTHON,
        b"INFO: mine",
    ]
    shown = {
        level: [n for n, line in enumerate(lines) if _is_shown(line, level)]
        for level in ("0", "1", "2", "3", "", "x")
    }
    assert shown == {
        "0": list(range(8)),
        "1": [3, 4, 5, 6, 7],
        "2": [4, 5, 6, 7],
        "3": [5, 6, 7],
        "": list(range(8)),
        "x": list(range(8)),
    }


def _is_shown(line, level):
    environment = {"TF_CPP_MIN_LOG_LEVEL": level}
    return tensorflow_lines.is_shown(
        line, tensorflow_lines.shown_level(environment)
    )


def test_lines_that_differ_in_time_and_process_are_alike():
    folding, shown, _ = _folding(2, key=tensorflow_lines.without_header)
    folding.add(0, ERROR)
    folding.add(1, ERROR.replace(b"19947", b"19946").replace(b"5.2", b"5.3"))
    assert shown == [(ERROR, [0, 1])]
    for one, other in itertools.combinations((ERROR, INFO, DATED, PYTHON), 2):
        keys = map(tensorflow_lines.without_header, (one, other))
        assert len(set(keys)) == 2
