"""Shards of what is not arrays or `tf.data`, and the orders of epochs."""

import contextlib
from unittest import mock

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf

from keras_ring.data import shard
from keras_ring.keras.data import epochs


@contextlib.contextmanager
def job(rank, size):
    with (
        mock.patch("keras_ring.core.topology.rank", lambda: rank),
        mock.patch("keras_ring.core.topology.size", lambda: size),
    ):
        yield


class Numbers(keras.utils.PyDataset):
    """Yields its indices, and counts the epochs it was told of."""

    def __init__(self, count, **arguments):
        super().__init__(**arguments)
        self._count = count
        self.epochs = [0, 0]

    @property
    def num_batches(self):
        return self._count

    def __getitem__(self, index):
        return np.array([index])

    def on_epoch_begin(self):
        self.epochs[0] += 1

    def on_epoch_end(self):
        self.epochs[1] += 1


def shards(make, size, **arguments):
    parts = []
    for rank in range(size):
        with job(rank, size):
            parts.append([int(x[0]) for x in shard(make(), **arguments)])
    return parts


def generator(count):
    return (np.array([i]) for i in range(count))


@pytest.mark.parametrize("make", [Numbers, generator])
@pytest.mark.parametrize(
    ("count", "uneven", "expected"),
    [
        (6, "error", [[0, 3], [1, 4], [2, 5]]),
        (7, "pad", [[0, 3, 6], [1, 4, 0], [2, 5, 1]]),
        (7, "drop", [[0, 3], [1, 4], [2, 5]]),
        # Fewer than ranks.
        (2, "pad", [[0], [1], [0]]),
        (1, "pad", [[0], [0], [0]]),
        (2, "drop", [[], [], []]),
        (0, "pad", [[], [], []]),
    ],
)
def test_parts(make, count, uneven, expected):
    assert shards(lambda: make(count), 3, uneven=uneven) == expected


@pytest.mark.parametrize("make", [Numbers, generator])
def test_error(make):
    for rank in range(3):
        with (
            job(rank, 3),
            pytest.raises(ValueError, match="be split evenly between 3 ranks"),
        ):
            list(shard(make(7), uneven="error"))


def test_one_rank_gets_all_of_it():
    with job(0, 1):
        for source in (Numbers(5), generator(5)):
            assert shard(source) is source


def test_a_generator_is_read_no_further_than_needed():
    read = []
    source = (read.append(i) or i for i in range(10**9))
    with job(1, 3):
        part = shard(source)
        assert [next(part), next(part)] == [1, 4]
    assert len(read) == 6


def test_a_generator_cannot_be_shuffled():
    with job(0, 2), pytest.raises(ValueError, match="cannot be shuffled"):
        shard(generator(4), shuffle=True)


def epochs_of(part, count):
    """Reads epochs as Keras does, which ends one before the first."""
    part.on_epoch_end()
    read = []
    for _ in range(count):
        part.on_epoch_begin()
        read.append([int(x[0]) for x in part])
        part.on_epoch_end()
    return read


def test_batches_are_shuffled_anew_in_each_epoch():
    by_rank = []
    for rank in range(2):
        with job(rank, 2):
            part = shard(Numbers(21), shuffle=True, seed=3)
            assert len(part) == part.num_batches == 11
            by_rank.append(epochs_of(part, 3))
    for epoch in range(3):
        first, second = by_rank[0][epoch], by_rank[1][epoch]
        # All of it, and one again.
        assert sorted({*first, *second}) == list(range(21))
        assert len(first) == len(second) == 11
    assert by_rank[0][0] != by_rank[0][1] != by_rank[0][2]


def test_another_seed_is_another_order():
    orders = []
    for seed in (3, 3, 4):
        with job(0, 1):
            part = shard(Numbers(20), shuffle=True, seed=seed)
            orders.append(epochs_of(part, 1))
    assert orders[0] == orders[1] != orders[2]


def test_the_data_set_is_told_of_epochs():
    source = Numbers(4, workers=2, max_queue_size=3)
    with job(1, 2):
        part = shard(source)
        epochs_of(part, 2)
    assert source.epochs == [2, 3]
    assert (part.workers, part.max_queue_size) == (2, 3)


def test_a_py_dataset_without_end():
    with job(1, 3):
        part = shard(Numbers(None))
        assert part.num_batches is None
        assert [int(part[i][0]) for i in range(3)] == [1, 4, 7]
        with pytest.raises(ValueError, match="without end"):
            shard(Numbers(None), shuffle=True)


def test_an_index_that_is_not_there():
    with job(1, 2), pytest.raises(IndexError, match="There are 2 batches"):
        shard(Numbers(4))[2]


def test_going_on_at_a_later_epoch():
    """What an epoch reads depends on nothing but its number."""

    def make(kind):
        if kind == "PyDataset":
            return shard(Numbers(20), shuffle=True)
        return shard(tf.data.Dataset.range(20), shuffle=True).batch(4)

    def read(part, kind, count):
        if kind == "PyDataset":
            return epochs_of(part, count)
        return [
            np.concatenate(list(part.as_numpy_iterator())).tolist()
            for _ in range(count)
        ]

    with job(1, 2):
        for kind in ("PyDataset", "tf.data"):
            expected = read(make(kind), kind, 4)
            assert len({tuple(epoch) for epoch in expected}) == 4
            again = make(kind)
            if kind == "PyDataset":
                again.on_epoch_end()
            epochs.resume_at(2)
            if kind == "PyDataset":
                again._epoch -= 1  # `read` ends one more
            assert read(again, kind, 2) == expected[2:]


def test_data_that_are_gone_are_not_told():
    with job(0, 2):
        before = len(list(epochs._counters))
        part = shard(Numbers(20), shuffle=True)
        assert len(list(epochs._counters)) == before + 1
        del part
        assert len(list(epochs._counters)) == before


def test_pandas():
    frame = pandas.DataFrame({"a": range(5), "b": [*"vwxyz"]}, index=[*"pqrst"])
    with job(1, 2):
        part, numbers = shard((frame, pandas.Series(range(5)) * 10))
    assert part.to_dict("list") == {"a": [1, 3, 0], "b": ["w", "y", "v"]}
    assert numbers.tolist() == [10, 30, 0]
