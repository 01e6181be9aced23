"""Process sets as plain values, and in a job of one rank."""

import copy
import pickle

import pytest

import keras_ring as kr
from keras_ring.core import process_sets


@pytest.fixture
def job():
    kr.init(process_sets="dynamic")
    yield
    kr.shutdown()


def test_ranks_are_sorted():
    process_set = kr.ProcessSet(iter([3, 0, 2]))
    assert process_set.ranks == [0, 2, 3]
    assert process_set.size() == 3
    assert process_set.process_set_id is None
    assert repr(process_set) == (
        "ProcessSet(ranks=[0, 2, 3], process_set_id=None)"
    )


@pytest.mark.parametrize(
    "ranks, text",
    [([], "at least one rank"), ([0, 0], "once"), ([-1, 0], "not negative")],
)
def test_what_cannot_be_ranks(ranks, text):
    with pytest.raises(ValueError, match=text):
        kr.ProcessSet(ranks)


@pytest.mark.parametrize("ranks", [3, ["0"], [0.5]])
def test_what_is_no_list_of_ranks(ranks):
    with pytest.raises(TypeError, match="list of ranks"):
        kr.ProcessSet(ranks)


def test_before_init():
    process_set = kr.ProcessSet([0])
    with pytest.raises(kr.errors.NotInitializedError):
        process_set.included()
    with pytest.raises(kr.errors.NotInitializedError):
        kr.add_process_set(process_set)
    with pytest.raises(kr.errors.NotInitializedError):
        kr.remove_process_set(process_set)
    with pytest.raises(kr.errors.NotInitializedError):
        kr.global_process_set.size()
    with pytest.raises(ValueError, match="add_process_set"):
        process_sets.id_of(process_set)


def test_init_takes_sets_or_dynamic():
    with pytest.raises(ValueError, match="'static'"):
        kr.init(process_sets="static")
    assert not kr.is_initialized()


def test_a_job_of_one_rank(job):
    assert kr.global_process_set.ranks == [0]
    assert kr.global_process_set.included()
    with pytest.raises(ValueError, match="global process set"):
        kr.add_process_set([0])
    with pytest.raises(ValueError, match="the ranks of this job are 0 to 0"):
        kr.add_process_set([1])
    with pytest.raises(ValueError, match="cannot be removed"):
        kr.remove_process_set(kr.global_process_set)
    assert kr.process_set_included_op().numpy() == 1
    assert kr.allreduce(2.0, process_set=kr.global_process_set).numpy() == 2.0


def test_only_process_sets_are_process_sets(job):
    for wrong in (0, [0], None):
        with pytest.raises(TypeError, match="`process_set` must be"):
            kr.allreduce(1.0, process_set=wrong)
    with pytest.raises(TypeError, match="`process_set` must be"):
        kr.remove_process_set(1)
    with pytest.raises(ValueError, match="`process_set` must be"):
        kr.DistributedOptimizer("sgd", process_set=[0])


def test_copies():
    assert copy.deepcopy(kr.global_process_set) is kr.global_process_set
    assert pickle.loads(pickle.dumps(kr.ProcessSet([2, 1]))).ranks == [1, 2]
