"""From what processes measured to the figures of `fit_scaling.py`."""

import threading
import time

import pytest

from benchmarks import fit_scaling
from benchmarks.fitting import figures, worker

TASK = worker.Task(
    distributed=False,
    model="dense",
    width=8,
    batch=10,
    steps=5,
    epochs=2,
    cores=[0],
    patience=1.0,
)


def result(seconds, busy_ns=None, share=1.0):
    return worker.Result(
        seconds=seconds,
        cpu_seconds=[share * each for each in seconds],
        busy_ns=busy_ns,
        gradient_bytes=3 << 20,
    )


def make(busy_ns=None):
    """Two processes, three rounds of two epochs of 50 images each."""
    alone = [[result([1.0, 1.0]), result([1.0, 1.0])]] * 3
    # The machine is slower in the last round, for both.
    alone = [*alone[:2], [result([2.0, 2.0]), result([2.0, 2.0])]]
    job = [
        [result([1.25, 1.25], busy_ns), result([1.25, 1.25], busy_ns)],
        [result([1.25, 1.25], busy_ns), result([1.25, 1.25], busy_ns)],
        [result([2.5, 2.5], busy_ns), result([2.5, 2.5], busy_ns)],
    ]
    return figures.make_figures(TASK, alone, job)


def test_figures():
    made = make()
    # Two processes with 50 images a second each.
    assert made.independent == [[100.0, 100.0], [100.0, 100.0], [50.0, 50.0]]
    assert made.distributed == [[80.0, 80.0], [80.0, 80.0], [40.0, 40.0]]
    assert made.efficiency == pytest.approx(0.8)
    assert made.independent_step == pytest.approx(0.2)
    assert made.distributed_step == pytest.approx(0.25)
    assert made.hidden is None


@pytest.mark.parametrize(
    ("busy_seconds", "hidden"),
    [
        # Of each epoch of 5 steps. A step is 0.05 s longer than without.
        (0.5, 0.5),
        (0.25, 0.0),
        (0.1, 0.0),  # something else made it longer
        (1.0, 0.75),
    ],
)
def test_hidden(busy_seconds, hidden):
    busy = int(busy_seconds * 1e9)
    assert make([busy, busy]).hidden == pytest.approx(hidden)


def test_no_more_than_all_is_hidden():
    alone = [[result([1.0, 1.0])]]
    job = [[result([0.9, 0.9], [1000, 1000])]]
    assert figures.make_figures(TASK, alone, job).hidden == 1.0


def test_spread():
    rounds = [[90.0, 100.0, 100.0], [100.0, 110.0]]
    # From 94 to 106.
    assert figures.median_and_spread(rounds) == pytest.approx((100.0, 0.06))


def test_table():
    text = fit_scaling.as_text([make([500_000_000] * 2)])
    row = text.splitlines()[-1].split()
    assert row == ["dense", "3.0", *row[2:6], "0.800", "50%"]
    assert (row[2], row[4]) == ("100.0", "80.0")
    without = fit_scaling.as_text([make()])
    assert without.splitlines()[-1] == fit_scaling.NO_COUNTERS


def test_cores_that_others_used_are_told():
    for share, told in ((0.8, True), (0.99, False)):
        alone = [[result([1.0, 2.0], share=share)]]
        made = figures.make_figures(TASK, alone, [[result([1.0, 2.0])]])
        assert made.core_share == pytest.approx(share)
        text = fit_scaling.as_text([made])
        assert ("dense: the independent processes had 80%" in text) == told


def test_busy_needs_all_counters():
    metrics = {"wait_ns": 1, "pack_ns": 2, "reduce_ns": 4, "unpack_ns": 8}
    assert worker.busy_ns({**metrics, "queue_ns": 16}) == 15
    for key in metrics:
        rest = {k: v for k, v in metrics.items() if k != key}
        assert worker.busy_ns(rest) is None


def test_a_meeting_waits_for_all(tmp_path):
    came = []

    def come(rank):
        worker.Meeting(tmp_path, rank, 3, 20.0).wait("now")
        came.append(rank)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 20
    while not (tmp_path / "now.1").exists():
        assert time.monotonic() < end
    assert came == []
    come(2)
    for thread in threads:
        thread.join(timeout=20)
    assert sorted(came) == [0, 1, 2]


def test_a_meeting_does_not_wait_for_ever(tmp_path):
    with pytest.raises(TimeoutError, match="nobody comes to now"):
        worker.Meeting(tmp_path, 0, 2, 0.05).wait("now")
