"""What is said of a `fit` that has ended."""

import re

import pytest

from keras_ring.keras.agreement import training_end
from keras_ring.keras.fit.figures import Figures
from keras_ring.keras.fit.summary import bytes_text, rate_text, summary

SECOND = 10**9
USUAL = Figures(
    fit_ns=12 * SECOND,
    steps=100,
    samples=3200,
    steady_ns=9 * SECOND,
    steady_steps=90,
    usual_ns=10 * SECOND,
    data_wait_ns=0,
    checkpoint_ns=0,
    execute_ns=2 * SECOND,
    hidden_ns=SECOND * 3 // 2,
    buckets=900,  # ten in each step
    last_buckets=225,
    late_ns=SECOND // 100,
    peak_bytes=1_400_000_000,
)
# By 10 ms, in all buckets of 80 steps.
LATE = {"last_buckets": 800, "late_ns": 8 * SECOND}


def four_ranks(**changes):
    """The lines on four ranks, of which the last is another one."""
    by_rank = [USUAL] * 3 + [USUAL._replace(**changes)]
    return summary(by_rank, [0, 1, 2, 3])


def test_ranks_can_tell_each_other_all():
    assert len(USUAL) <= training_end.NUM_FIGURES
    row = [*USUAL, *[0] * (training_end.NUM_FIGURES - len(USUAL))]
    assert Figures.of_row(row) == USUAL


def test_pace_and_communication_of_all():
    pace, communication, last = four_ranks(peak_bytes=2_000_000_000)
    # 90 steps in 9 s, of 32 samples on each rank.
    assert pace == (
        "100 steps of 128 in 12.0 s; later ones, 100.0 ms each: 1,280"
        " samples/s of 4 ranks, up to 2.0 GB of memory per rank."
    )
    # A fifth of the time, three quarters of it beside computation.
    assert communication == (
        "Communication takes 20% of the time, of which 75% is hidden behind"
        " computation."
    )
    assert last.startswith("No rank was late")


def test_what_is_hidden_is_that_of_all_ranks_together():
    _, communication, _ = four_ranks(hidden_ns=0, execute_ns=4 * SECOND)
    assert "45% is hidden" in communication


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "its computation (compute)"),
        ({"data_wait_ns": SECOND * 8 // 10}, "its input pipeline (data)"),
        ({"checkpoint_ns": SECOND * 8 // 10}, "its checkpoints (checkpoint)"),
    ],
)
def test_the_slowest_rank_and_why(changes, cause):
    *_, last = four_ranks(**LATE, **changes)
    assert (
        last == f"89% of the buckets waited for rank 3, 10.0 ms each: {cause}."
    )


def test_slow_links_are_of_nobody():
    by_rank = [USUAL._replace(execute_ns=6 * SECOND)] * 2
    *_, last = summary(by_rank, [0, 1])
    assert last.endswith("the links between ranks (link).")


def test_one_rank_has_nobody_to_wait_for():
    (pace,) = summary([USUAL._replace(**LATE)], [0])
    assert "ranks" not in pace
    assert "320 samples/s, up to 1.4 GB of memory." in pace


def test_a_fit_of_one_step_has_a_pace():
    figures = USUAL._replace(
        steps=1, samples=32, steady_ns=0, steady_steps=0, fit_ns=2 * SECOND
    )
    (pace,) = summary([figures], [0])
    assert pace.startswith("1 step of 32 in 2.0 s: 16.0 samples/s")


def test_a_fit_without_steps_is_no_error():
    nothing = Figures(*[0] * len(USUAL))
    assert len(summary([nothing, nothing], [0, 1])) == 3


def test_texts_of_numbers():
    assert bytes_text(735e6) == "735 MB"
    assert rate_text(12345.6) == "12,346 samples/s"
    assert rate_text(9.87) == "9.9 samples/s"


def test_figures_of_one_line_agree():
    """Also where ranks have taken different times."""
    by_rank = [USUAL, USUAL._replace(steady_ns=12 * SECOND, samples=3000)]
    pace, *_ = summary(by_rank, [0, 1])
    batch, milliseconds, rate = re.match(
        r"100 steps of (\d+) in 12\.0 s; later ones, ([\d.]+) ms each: (\d+) ",
        pace,
    ).groups()
    assert batch == "62"
    assert float(rate) == pytest.approx(
        62 / float(milliseconds) * 1e3, rel=0.01
    )


def test_batches_of_different_sizes():
    pace, *_ = summary([USUAL._replace(samples=3210)], [0])
    assert pace.startswith("100 steps of about 32 in")


def test_ranks_that_take_turns_are_not_named():
    """Each of two ranks is last for half of the buckets, or nearly."""
    by_rank = [
        USUAL._replace(last_buckets=430, late_ns=4 * SECOND),
        USUAL._replace(last_buckets=470, late_ns=5 * SECOND),
    ]
    *_, last = summary(by_rank, [0, 1])
    assert last == (
        "The ranks take turns at being last, which takes 9% of the time: their"
        " computation, which varies from step to step (turns)."
    )
    *_, last = summary(
        [
            USUAL._replace(last_buckets=180, late_ns=SECOND),
            USUAL._replace(last_buckets=720, late_ns=8 * SECOND),
        ],
        [0, 1],
    )
    assert last.startswith("80% of the buckets waited for rank 1")
