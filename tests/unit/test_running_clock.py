"""Time as far as a process has run."""

from keras_ring.launch.running_clock import RunningClock


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_it_shows_the_time_of_a_process_that_looks_often():
    time = Time()
    clock = RunningClock(1.0, time)
    for _ in range(5):
        time.now += 1.0
        assert clock.look() == 0.0
        assert clock.now() == time.now


def test_what_goes_beyond_the_gap_is_lost():
    time = Time()
    clock = RunningClock(1.0, time)
    time.now += 3600.0
    # Before it is known.
    assert clock.now() == 101.0
    assert clock.look() == 3599.0
    assert clock.now() == 101.0
    assert clock.look() == 0.0
    time.now += 1.5
    assert clock.look() == 0.5
    assert clock.now() == 102.0
