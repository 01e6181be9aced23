"""Which GPU each rank gets."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from keras_ring.tensorflow.pinning import choose

GPUS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(st.lists(GPUS, max_size=12))
def test_each_rank_gets_one_that_it_sees(seen):
    choice = choose(seen)
    assert len(choice) == len(seen)
    for own, index in zip(seen, choice, strict=True):
        assert index in range(len(own)) if own else index is None


@given(GPUS.filter(len), st.integers(0, 20))
def test_ranks_of_a_host_share_evenly(seen, num_ranks):
    users = collections.Counter(choose([seen] * num_ranks))
    counts = [users[index] for index in range(len(seen))]
    assert max(counts) - min(counts) <= 1
    assert choose([seen] * num_ranks) == [
        rank % len(seen) for rank in range(num_ranks)
    ]


def test_one_that_the_scheduler_has_given_is_kept():
    assert choose([["a"], ["b"], ["c"], ["c"]]) == [0, 0, 0, 0]
    assert choose([["b"], ["a", "b"], ["a", "b"]]) == [0, 0, 0]


def test_ranks_without_one():
    assert choose([[], ["a", "b"], [], ["a", "b"]]) == [None, 0, None, 1]
