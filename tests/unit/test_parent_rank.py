"""Whether a process is a rank, or was started by one."""

import json
import os
from types import SimpleNamespace

import pytest

from keras_ring.core import parent_rank
from keras_ring.protocol import contract
from keras_ring.protocol.contract import RankContract

TOPOLOGY = parent_rank.Topology(
    rank=1,
    size=4,
    local_rank=1,
    local_size=2,
    cross_rank=0,
    cross_size=2,
    homogeneous=True,
)
CONTRACT = RankContract(
    rank=1,
    size=4,
    rendezvous="127.0.0.1:4000",
    job_key="0" * 64,
    error_file="/tmp/rank.1",
)


def marked(**changes: str) -> dict[str, str]:
    """Returns the environment of what this process starts, as rank 1."""
    environment = CONTRACT.environment({})
    parent_rank.mark(environment, SimpleNamespace(**vars(TOPOLOGY)))
    return {**environment, **changes}


@pytest.fixture
def elsewhere(monkeypatch):
    """Has what follows run in another process, as far as it can tell."""
    return lambda: monkeypatch.setattr(
        parent_rank, "_own_process", lambda: [1, 1]
    )


def test_a_rank_is_no_child_of_itself():
    assert parent_rank.found(marked()) is None
    assert parent_rank.found({}) is None
    assert parent_rank.found({contract.PARENT_RANK: ""}) is None


def test_a_child_knows_its_parent(elsewhere):
    environment = marked()
    elsewhere()
    parent = parent_rank.found(environment)
    assert parent == parent_rank.ParentRank(pid=os.getpid(), topology=TOPOLOGY)


def test_a_process_id_that_is_used_again_is_another_process():
    environment = marked()
    mark = json.loads(environment[contract.PARENT_RANK])
    mark["process"][1] -= 1
    environment[contract.PARENT_RANK] = json.dumps(mark)
    assert parent_rank.found(environment) is not None


@pytest.mark.parametrize(
    "change",
    [
        {contract.SIZE: "1"},
        {contract.RANK: "0"},
        {contract.RENDEZVOUS: "127.0.0.1:4001"},
        {contract.GENERATION: "1"},
    ],
)
def test_who_is_placed_anew_is_a_rank(change, elsewhere):
    environment = marked(**change)
    elsewhere()
    assert parent_rank.found(environment) is None


def test_a_launcher_starts_ranks_wherever_it_runs():
    environment = CONTRACT.environment(marked())
    assert contract.PARENT_RANK not in environment


def test_a_rank_that_is_alone_marks_nothing():
    alone = SimpleNamespace(**{**vars(TOPOLOGY), "rank": 0, "size": 1})
    environment = marked()
    parent_rank.mark(environment, alone)
    assert contract.PARENT_RANK not in environment


def test_a_job_of_its_own_keeps_nothing_of_the_rank(elsewhere):
    alone = marked(KERAS_RING_SIZE="1", KERAS_RING_TIMELINE="x")
    of_the_rank, worker = dict(alone), marked()
    parent_rank.leave(of_the_rank)
    assert of_the_rank == alone, "the rank itself"
    elsewhere()
    before = dict(worker)
    parent_rank.leave(worker)
    assert worker == before, "not asked for"
    parent_rank.leave(alone)
    assert alone == {contract.SIZE: "1", "PYTHONUNBUFFERED": "1"}
