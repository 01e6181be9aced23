"""What two looks at a job tell: rates, who waits for whom, and why."""

import dataclasses
import json

import pytest

from keras_ring.observe import words
from keras_ring.observe.pages import Page
from keras_ring.observe.record import record
from keras_ring.observe.view import view
from keras_ring.observe.waiting import cause_of, explain

S = 10**9


def page(rank, at, *, size=4, alive=True, host="node1", **counters):
    """Returns a page as it was at a time in seconds after the start."""
    told = {
        name: int(value * S) if name.endswith("_ns") else value
        for name, value in counters.items()
    }
    return Page(
        rank=rank,
        size=size,
        local_rank=rank,
        host=host,
        pid=1000 + rank,
        job="0123456789ab",
        command="python train.py",
        cwd="/",
        started_unix_ns=5 * S,
        started_ns=100 * S,
        read_ns=int((100 + at) * S),
        alive=alive,
        memory=2**30 if alive else 0,
        counters=told,
    )


def usual(at, **counters):
    """Returns the counters of a rank that has trained for a time."""
    return {
        "fit_steps": int(10 * at),
        "samples": int(320 * at),
        "buckets": int(20 * at),
        "last_buckets": int(5 * at),
        "late_ns": 0.001 * at,
        "execute_ns": 0.1 * at,
        "data_wait_ns": 0.01 * at,
        "checkpoint_ns": 0,
        "epoch": 2,
        "submitted_ns": 100 + at,
        "done_ns": 100 + at,
        **counters,
    }


def looks(changes=None, size=4, **all_ranks):
    """Returns a view of 10 s, in which ranks did as `changes` says."""
    changes = changes or {}
    before = [page(r, 0, size=size, **usual(0)) for r in range(size)]
    now = [
        page(r, 10, size=size, **usual(10, **all_ranks, **changes.get(r, {})))
        for r in range(size)
    ]
    return view(before, now)


def test_rates_and_shares():
    job = looks()
    assert job.steps_per_second == pytest.approx(10)
    assert job.samples_per_second == pytest.approx(4 * 320)
    assert job.communication == pytest.approx(0.1)
    assert job.data == pytest.approx(0.01)
    assert (job.epoch, job.seconds, job.memory) == (2, 10, 4 * 2**30)
    assert job.ranks[1].last == pytest.approx(0.25)
    assert job.ranks[1].late_mean == pytest.approx(0.01 / 50)
    assert (job.hosts, job.unseen) == (("node1",), ())
    assert explain(job) == []


def test_one_look_has_no_rates():
    job = view((), [page(0, 10, **usual(10))])
    assert job.steps_per_second is None
    assert job.ranks[0].late is None
    assert job.unseen == (1, 2, 3)
    assert explain(job) == []


def test_steps_of_a_program_without_fit():
    first = {"steps": 0, "fit_steps": 0, "samples": 0}
    before = [page(0, 0, **first), page(1, 0, **first)]
    now = [page(0, 10, **{**first, "steps": 50}), page(1, 10, **first)]
    job = view(before, now)
    assert job.steps_per_second == pytest.approx(5)
    assert job.ranks[1].steps_per_second is None
    assert job.samples_per_second is None


def test_a_rank_that_has_started_again_has_no_rates_yet():
    now = dataclasses.replace(page(0, 10, **usual(1)), started_ns=105 * S)
    assert view([page(0, 0, **usual(5))], [now]).samples_per_second is None


SLOW = {"last_buckets": 142, "late_ns": 2.0}


@pytest.mark.parametrize(
    "cause, changes",
    [
        ("data", {"data_wait_ns": 2.1}),
        ("checkpoint", {"checkpoint_ns": 1.9}),
        ("compute", {}),
        # The two buckets of a step wait at the same time: for 1 s in all.
        ("data", {"data_wait_ns": 0.9}),
        # No more than half of its lateness.
        ("compute", {"data_wait_ns": 0.5}),
    ],
)
def test_the_cause_of_lateness(cause, changes):
    job = looks({2: {**SLOW, **changes}})
    slowest, found = cause_of(job)
    assert (slowest.rank, found) == (2, cause)
    (text,) = explain(job)
    assert text == (
        "71% of the buckets waited for rank 2, 14.1 ms each:"
        f" {words.CAUSES[cause]} ({cause})."
    )
    told = json.loads(json.dumps(record(job)))
    assert (told["slowest"], told["cause"]) == (2, cause)
    assert told["messages"] == [text]


def test_a_rank_that_was_late_once_does_not_hide_one_that_is_slow():
    once = {"last_buckets": 1, "late_ns": 3.0}
    slowest, cause = cause_of(looks({0: once, 2: {**SLOW, "data_wait_ns": 2}}))
    assert (slowest.rank, cause) == (2, "data")
    assert cause_of(looks({0: once})) == (None, "")


def test_a_rank_that_is_last_but_hardly_late_is_not_slow():
    assert cause_of(looks({2: {**SLOW, "late_ns": 0.05}})) == (None, "")


def test_what_all_ranks_do_is_no_cause_of_lateness():
    slow = {rank: {"data_wait_ns": 2.1} for rank in range(4)}
    slow[2] |= SLOW
    assert cause_of(looks(slow))[1] == "compute"


@pytest.mark.parametrize(
    "cause, all_ranks, text",
    [
        ("data", {"data_wait_ns": 3.0}, "input pipelines 30%"),
        ("checkpoint", {"checkpoint_ns": 2.0}, "Checkpoints take 20%"),
        ("link", {"execute_ns": 4.0}, "Communication takes 40%"),
    ],
)
def test_what_slows_all_ranks_alike(cause, all_ranks, text):
    job = looks(**all_ranks)
    assert cause_of(job) == (None, cause)
    assert text in explain(job)[0]


def waiting(changes, quiet=3.0, **waiters):
    """Returns a view in which ranks wait, but for those with `changes`."""
    mine = {"submitted_ns": 110 - quiet, "done_ns": 101, "pending": 2}
    return looks(
        {
            rank: {
                **mine,
                **waiters,
                **({"pending": 0, **changes[rank]} if rank in changes else {}),
            }
            for rank in range(4)
        }
    )


@pytest.mark.parametrize(
    "activity, text",
    [
        (0, "computes"),
        (1, "waits for its input pipeline"),
        (2, "saves a checkpoint"),
        (3, "evaluates"),
        (4, "predicts"),
        (99, "computes"),
    ],
)
def test_who_waits_for_whom(activity, text):
    job = waiting({2: {"activity": activity}})
    assert explain(job) == [
        f"Ranks 0, 1 and 3 wait for rank 2, which {text}; it has been 3 s."
    ]


def test_ranks_that_do_different_things_are_waited_for():
    job = waiting({0: {}, 1: {"activity": 1}, 3: {"activity": 1}})
    assert explain(job) == [
        "Rank 2 waits for ranks 1 and 3, which wait for their input pipelines"
        " and rank 0, which computes; it has been 3 s."
    ]


def test_a_rank_that_a_signal_has_stopped():
    now = [page(r, 10, **usual(10, pending=1, done_ns=0)) for r in range(4)]
    now = [
        dataclasses.replace(
            each,
            stopped=each.rank == 1,
            counters={**each.counters, "submitted_ns": 107 * S},
        )
        for each in now
    ]
    assert explain(view((), now)) == [
        "Ranks 0, 2 and 3 wait for rank 1, which has been stopped by a signal;"
        " it has been 3 s."
    ]


def test_nobody_is_missing():
    assert explain(waiting({}, quiet=3)) == []
    (text,) = explain(waiting({}, quiet=7))
    assert text.startswith("All ranks have been in a collective for 7 s")


def test_every_step_waits_for_a_moment():
    assert explain(waiting({2: {}}, quiet=0.2)) == []


def test_ranks_that_are_not_seen():
    mine = {"pending": 1, "submitted_ns": 106, "done_ns": 0}
    job = view((), [page(0, 10, **mine), page(1, 10, **mine)])
    assert explain(job) == [
        "Ranks 0 and 1 wait, perhaps for ranks 2 and 3, of which nothing is"
        " seen here; it has been 4 s."
    ]


def test_ranks_that_have_gone():
    before = [page(r, 0, **usual(0)) for r in range(4)]
    now = [
        page(0, 10, **usual(10)),
        page(1, 10, alive=False, **usual(10)),
        dataclasses.replace(
            page(3, 10, alive=False, **usual(10)), error="lost rank 1"
        ),
    ]
    job = view(before, now)
    states = [rank.state for rank in job.ranks]
    assert states == ["running", "killed", "gone", "failed"]
    assert explain(job) == [
        "Rank 1 was killed.",
        "Rank 3 has failed.",
        "Rank 2 is not seen any more: the job ends, or a host does not answer.",
    ]
    assert job.samples_per_second == pytest.approx(320)
    assert job.unseen == ()
    assert view([], []) is None


@pytest.mark.parametrize(
    "ranks, text",
    [
        ([3], "rank 3"),
        ([1, 0], "ranks 0 and 1"),
        ([0, 1, 2, 5], "ranks 0-2 and 5"),
        (range(0, 20, 2), "ranks 0, 2, 4, 6, 8 and 5 more"),
        (range(512), "ranks 0-511"),
    ],
)
def test_ranks_in_words(ranks, text):
    assert words.rank_names(ranks) == text


def test_ranks_that_take_turns_are_not_named():
    late = {"last_buckets": 50, "late_ns": 1.0}
    job = looks(**late)
    assert cause_of(job) == (None, "turns")
    (text,) = explain(job)
    assert text.startswith("The ranks take turns at being last, which takes ")
    assert record(job)["slowest"] is None
