"""Looks at what is trained: rare, small, and at all of it in the end."""

import pytest
import tensorflow as tf

from keras_ring.keras.agreement import fingerprints, looks


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(looks, "time", clock)
    return clock


def pieces_of(count, values=1000):
    return fingerprints.Pieces([tf.Variable(tf.zeros(values))] * count)


SMALL = pieces_of(10)
LARGE = pieces_of(3000)
# Of a variable that is read in 10 us.
_SECONDS = 1e-5 / (4000 + (32 << 10))


def run(clock, look, pieces, periods, period, *, slower=1.0, others=(0, 0)):
    """Returns the periods before which there was a look, and at what."""
    found = []
    for number in range(periods):
        clock.now += period
        if look.is_due():
            with look.looking(pieces) as part:
                effort = len(part) * pieces.effort / len(pieces)
                clock.now += slower * effort * _SECONDS
            found.append((number, [each.variable_index for each in part]))
            wishes = look.wishes(pieces)
            look.agreed(*map(max, wishes, others))
    return found


def times(found):
    return [number for number, _ in found]


def test_what_is_small_is_looked_at_as_a_whole_ever_more_rarely(clock):
    look = looks.Looks()
    found = run(clock, look, SMALL, 3000, 0.01)
    assert times(found) == [0, *(2**n - 1 for n in range(1, 11)), 2047]
    assert all(sorted(part) == list(range(10)) for _, part in found)


def test_the_first_look_is_at_all_and_those_after_it_at_some(clock):
    found = run(clock, looks.Looks(), LARGE, 8, 0.1)
    assert times(found) == [0, 1, 3, 7]
    # A 200th of 4 periods pays for so many.
    assert [len(part) for _, part in found] == [3000, 15, 15, 200]


def test_slow_steps_at_the_beginning_pay_for_nothing(clock):
    look = looks.Looks()
    clock.now += 1000  # traces
    found = run(clock, look, LARGE, 1, 0.01)
    clock.now += 100  # its first run
    found += run(clock, look, LARGE, 7, 0.01)
    assert [len(part) for _, part in found] == [3000, 15, 15, 20]


def test_the_smallest_look_is_at_some_sixteen(clock):
    found = run(clock, looks.Looks(), LARGE, 8, 0.001)
    assert times(found) == [0, 1, 3, 7]
    assert [len(part) for _, part in found] == [3000, 15, 15, 15]


def test_all_is_looked_at_before_anything_is_again(clock):
    found = run(clock, looks.Looks(), LARGE, 40_000, 0.001)
    indexes = [index for _, part in found[1:] for index in part]
    assert len(indexes) > 3 * 3000
    for begin in range(0, len(indexes) - 3000, 3000):
        assert set(indexes[begin : begin + 3000]) == set(range(3000))


@pytest.mark.parametrize("period", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("slower", [1, 30])
def test_looks_take_half_a_hundredth_of_the_time(clock, period, slower):
    found = run(clock, looks.Looks(), LARGE, 20_000, period, slower=slower)
    of_one = 1e-5 * slower
    sizes = [len(part) for _, part in found]
    assert sizes[0] == 3000
    assert sum(sizes[1:]) * of_one < 0.02 + 0.006 * clock.now
    assert sum(sizes[1:]) > 100


def test_what_pays_for_all_of_them_is_a_look_at_all_of_them(clock):
    found = run(clock, looks.Looks(), LARGE, 300, 0.1)
    # 30 ms are a 200th of 60 periods.
    assert [len(part) for number, part in found if number > 63] == [3000] * 2


def test_ranks_do_what_the_one_does_that_would_look_least(clock):
    look = looks.Looks()
    found = run(clock, look, LARGE, 100, 10.0, others=(5, 7))
    assert times(found)[:4] == [0, 5, 10, 15]
    sizes = [len(part) for number, part in found[3:]]
    assert set(sizes) <= {428, 429}


def test_what_begins_again_is_looked_at_as_a_whole(clock):
    look = looks.Looks()
    run(clock, look, LARGE, 400, 0.1)
    look.begin_again()
    found = run(clock, look, LARGE, 6, 0.1)
    assert times(found)[:2] == [0, 1]
    assert [len(part) for _, part in found][:2] == [3000, 50]


def test_what_they_have_taken_before_counts(clock):
    look = looks.Looks()
    slower = 30  # than time that pays for it
    run(clock, look, LARGE, 1000, 0.001, slower=slower)
    look.begin_again()
    first, second, *_ = times(
        run(clock, look, LARGE, 2000, 0.001, slower=slower)
    )
    assert first == 0
    # 15 of them take 4.5 ms, a 200th of 900 periods.
    assert second > 850


def test_a_variable_of_many_bytes_is_looked_at_in_pieces(clock):
    pieces = pieces_of(2, 4 << 20)
    found = run(clock, looks.Looks(), pieces, 20_000, 0.001, slower=30)
    sizes = [len(part) for _, part in found]
    assert sizes[:4] == [32, 1, 1, 1]
    of_one = 30 * pieces.largest * _SECONDS
    assert sum(sizes[1:]) * of_one < 0.02 + 0.006 * clock.now
