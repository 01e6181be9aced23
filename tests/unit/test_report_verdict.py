"""The first sentence of a report names what was planted."""

import dataclasses
import re

import numpy as np
import pytest

from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.verdict import verdict
from keras_ring.observe.timeline.model import Phase
from tests.unit.made_timelines import Job, make

PLANTED = {
    "data": (
        {"slow_data": {1: 5.0}},
        r"Rank 1 was last in 100% of the steps, by [45](\.\d)? ms in the"
        r" median: it waits for its input pipeline \([45](\.\d)? ms per step,"
        r" others \d+ us\)",
    ),
    "compute": (
        {"slow_compute": {1: 6.0}},
        r"Rank 1 was last in 100% of the steps, by [56](\.\d)? ms in the"
        r" median: it computes more slowly \(2[56](\.\d)? ms per step, others"
        r" 20(\.\d)? ms\)",
    ),
    "checkpoint": (
        {"checkpoint": 80.0, "checkpoint_every": 4},
        r"Rank 0 was last in (20|25)% of the steps, by (79|80)(\.\d)? ms in"
        r" the median: it writes checkpoints \([13] times in (5|12) steps,"
        r" 80 ms each\)",
    ),
    "unfused": (
        {"buckets": 12, "tensors": 1, "bucket_bytes": 1024, "transfer": 2.0},
        r"Tensors are not fused: a step sends 12 buckets of 1 KiB in the"
        r" median",
    ),
}
# Two ranks wait for each other, whichever of them is the reason.
LINK = {
    8: (
        {"slow_link": (1, 8.0), "hosts": 8},
        r"The link of rank 1 \(node[12]\) is slow: no rank is late",
    ),
    2: (
        {"transfer": 12.0, "hosts": 2},
        r"Communication takes 3\d(\.\d)? ms of 5\d(\.\d)? ms per step that"
        r" nothing hides, and no rank is late: the link between the hosts is"
        r" what is slow \(32 MiB per step, 0.7 GB/s\)",
    ),
}
LINK[512] = LINK[8]


def sentences(**job):
    return verdict(analyse(make(Job(**job))))


@pytest.mark.parametrize("size", [2, 8, 512])
@pytest.mark.parametrize("cause", [*PLANTED, "link"])
def test_the_first_sentence_names_the_cause(cause, size):
    job, expected = LINK[size] if cause == "link" else PLANTED[cause]
    amount = {"steps": 13}
    if size == 512:
        amount = {"steps": 6, "buckets": 2, "tensors": 2}
    found = sentences(size=size, **amount | job)
    assert re.match(expected, found[0]), found
    assert len(found) == 3
    assert found[1].startswith("That is ")


@pytest.mark.parametrize("size", [1, 2, 8])
def test_nothing_stands_out_of_a_job_that_is_well(size):
    found = sentences(size=size)
    assert found[0].startswith("Nothing stands out: 1")
    assert "of which 75% is hidden behind compute." in found[0]
    assert found[1].startswith("The median step takes 21.")


def test_of_two_ranks_none_is_named_for_its_link():
    """Each waits for the other, whoever is the reason."""
    found = sentences(size=2, hosts=2, slow_link=(1, 8.0))
    assert found[0].startswith("Communication takes ")


def test_all_may_wait_for_data():
    assert sentences(data=9.0)[0].startswith(
        "All ranks wait for their input pipelines, 9"
    )


def test_a_rank_that_evaluates_alone():
    made = make(Job(size=4, checkpoint=80.0, checkpoint_every=4))
    ranks = []
    for rank in made.ranks:
        spans = rank.spans.copy()
        spans["phase"][spans["phase"] == Phase.CHECKPOINT] = Phase.EVALUATE
        ranks.append(dataclasses.replace(rank, spans=spans))
    found = verdict(analyse(dataclasses.replace(made, ranks=tuple(ranks))))
    assert "it evaluates (4 times in 19 steps, 80 ms each)" in found[0]


def test_ranks_may_take_turns():
    made = make(Job(size=4, steps=40, slow_compute={0: 9.0}))
    ranks = []
    for rank in made.ranks:
        spans = rank.spans.copy()
        late = spans["phase"] == Phase.LATE
        # Of a step's four buckets, each with a tag of 16 more.
        spans["peer"][late] = spans["tag"][late] // 64 % 4
        ranks.append(dataclasses.replace(rank, spans=spans))
    found = verdict(analyse(dataclasses.replace(made, ranks=tuple(ranks))))
    assert found[0].startswith("The ranks take turns at being last, by ")


def test_who_is_last_does_not_have_to_compute_more_slowly(monkeypatch):
    """One rank is mostly last, by chance: it computes as long as the others."""
    made = make(Job(size=4, steps=40, slow_compute={0: 9.0}))
    found = analyse(made)
    assert verdict(found)[0].startswith("Rank 0 was last in ")
    equal = np.full_like(found.activity.compute, 20e6)
    monkeypatch.setattr(
        type(found.activity), "compute", property(lambda self: equal)
    )
    assert verdict(found)[0].startswith("The ranks take turns at being last")


def test_killed_ranks_are_told_of():
    made = make(Job(size=4))
    ranks = [
        dataclasses.replace(rank, ended_ns=None) if rank.rank > 1 else rank
        for rank in made.ranks
    ]
    found = verdict(analyse(dataclasses.replace(made, ranks=tuple(ranks))))
    assert len(found) == 3
    assert found[2].startswith("Ranks 2-3 of 4 have no end of the timeline")


def test_without_steps_there_is_nothing_to_compare():
    made = make(Job(size=2, steps=1))
    keep = [
        dataclasses.replace(rank, spans=rank.of(Phase.EXECUTE))
        for rank in made.ranks
    ]
    found = verdict(analyse(dataclasses.replace(made, ranks=tuple(keep))))
    assert found == ["The timeline has no steps, so nothing can be compared."]
