"""AutoGraph converts the user's function, and nothing of ours."""

import sys

import pytest
import tensorflow as tf

import keras_ring as kr

CALLS = {
    "allreduce": lambda x: kr.allreduce(x),
    "allreduce of slices": lambda x: kr.allreduce(
        tf.IndexedSlices(x, tf.constant([0, 1]), tf.constant([4]))
    ),
    "grouped_allreduce": lambda x: kr.grouped_allreduce([x]),
    "reducescatter": lambda x: kr.reducescatter(x),
    "grouped_reducescatter": lambda x: kr.grouped_reducescatter([x]),
    "allgather": lambda x: kr.allgather(x),
    "grouped_allgather": lambda x: kr.grouped_allgather([x]),
    "alltoall": lambda x: kr.alltoall(x),
    "broadcast": lambda x: kr.broadcast(x, 0),
    "barrier": lambda x: (kr.barrier(), x)[1],
    "join": lambda x: kr.join(),
    "rank_op": lambda x: kr.rank_op(),
    "size_op": lambda x: kr.size_op(),
    "local_rank_op": lambda x: kr.local_rank_op(),
    "local_size_op": lambda x: kr.local_size_op(),
    "process_set_included_op": lambda x: kr.process_set_included_op(0),
}


def converted():
    return {name for name in sys.modules if name.startswith("__autograph")}


@pytest.fixture(scope="module", autouse=True)
def job():
    kr.init()
    yield
    kr.shutdown()


@pytest.mark.parametrize("name", CALLS)
def test_nothing_of_ours_is_converted(name):
    before = converted()
    tf.function(CALLS[name])(tf.ones([2]))
    assert len(converted() - before) == 1
