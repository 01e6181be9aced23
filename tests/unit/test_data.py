"""Shards of data: disjoint, equal in number, the same each time."""

import contextlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_ring.data import shard
from keras_ring.keras.data.sharded_files import divided


@contextlib.contextmanager
def job(rank, size):
    with (
        mock.patch("keras_ring.core.topology.rank", lambda: rank),
        mock.patch("keras_ring.core.topology.size", lambda: size),
    ):
        yield


def shards(dataset, size, **arguments):
    """Returns what each rank gets."""
    parts = []
    for rank in range(size):
        with job(rank, size):
            part = shard(dataset, **arguments)
        if isinstance(part, tf.data.Dataset):
            part = np.array(list(part.as_numpy_iterator()), "int64")
        parts.append(part)
    return parts


def as_dataset(num):
    return tf.data.Dataset.range(num)


def make_source(kind, num):
    return np.arange(num) if kind == "array" else as_dataset(num)


KINDS = pytest.mark.parametrize("kind", ["array", "dataset"])
numbers = st.integers(0, 40)
sizes = st.integers(1, 6)


@KINDS
@settings(max_examples=40, deadline=None)
@given(
    num=numbers,
    size=sizes,
    uneven=st.sampled_from(["pad", "drop"]),
    shuffle=st.booleans(),
    seed=st.integers(0, 3),
)
def test_properties(kind, num, size, uneven, shuffle, seed):
    arguments = {"uneven": uneven, "shuffle": shuffle, "seed": seed}
    source = make_source(kind, num)
    parts = shards(source, size, **arguments)

    # The same number on every rank.
    per_rank = num // size if uneven == "drop" else -(-num // size)
    assert [len(part) for part in parts] == [per_rank] * size
    together = np.concatenate(parts)
    counts = np.bincount(together.astype("int64"), minlength=num)[:num]
    if uneven == "drop":
        # Disjoint, and all but the rest is there.
        assert set(counts) <= {0, 1}
        assert np.count_nonzero(counts == 0) == num % size
        if not shuffle:
            assert np.all(counts[: num - num % size] == 1)
    elif num:
        # All is there, and no more than the missing is there again.
        assert counts.min() >= 1
        assert counts.sum() - num == -num % size
    # The same each time.
    for part, again in zip(
        parts, shards(source, size, **arguments), strict=True
    ):
        np.testing.assert_array_equal(part, again)


@KINDS
@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(2, 4), batch=st.integers(1, 5), batches=st.integers(1, 4)
)
def test_a_step_of_all_ranks_is_a_batch_of_one_process(
    kind, size, batch, batches
):
    parts = shards(make_source(kind, size * batch * batches), size)
    for step in range(batches):
        rows = slice(step * batch, (step + 1) * batch)
        together = np.sort(np.concatenate([part[rows] for part in parts]))
        first = step * batch * size
        assert together.tolist() == list(range(first, first + batch * size))


@KINDS
def test_error(kind):
    assert [len(p) for p in shards(make_source(kind, 6), 3, uneven="error")]
    with pytest.raises(ValueError, match="7 elements cannot be split evenly"):
        shards(make_source(kind, 7), 3, uneven="error")


@KINDS
def test_one_rank_gets_all_of_it(kind):
    source = make_source(kind, 7)
    with job(0, 1):
        assert shard(source) is source
        assert shard(source, uneven="error") is source
    (part,) = shards(source, 1, shuffle=True)
    assert part.tolist() != list(range(7))
    assert sorted(part) == list(range(7))


def test_padding_comes_from_the_start():
    for kind in ("array", "dataset"):
        parts = shards(make_source(kind, 5), 3)
        assert [p.tolist() for p in parts] == [[0, 3], [1, 4], [2, 0]]


def test_structures_of_arrays():
    arrays = {
        "x": (np.arange(6).reshape(6, 1), tf.range(6) * 10),
        "y": [np.arange(6) % 2 == 0],
    }
    with job(1, 2):
        part = shard(arrays)
    assert part["x"][0].tolist() == [[1], [3], [5]]
    assert isinstance(part["x"][1], tf.Tensor)
    assert part["x"][1].numpy().tolist() == [10, 30, 50]
    assert part["y"][0].tolist() == [False, False, False]


def test_rows_stay_together_when_shuffled():
    x = np.arange(20)
    for part_x, part_y in shards((x, x * 7), 3, shuffle=True, seed=4):
        np.testing.assert_array_equal(part_x * 7, part_y)


def test_structures_of_a_dataset():
    dataset = tf.data.Dataset.from_tensor_slices(
        {"x": np.arange(4), "y": np.arange(4) * 2}
    )
    with job(1, 2):
        rows = list(shard(dataset).as_numpy_iterator())
    assert rows == [{"x": 1, "y": 2}, {"x": 3, "y": 6}]


def test_a_batched_dataset_is_split_by_batches():
    parts = []
    for rank in range(2):
        with job(rank, 2):
            part = shard(as_dataset(10).batch(4))
        parts.append([b.tolist() for b in part.as_numpy_iterator()])
    assert parts == [
        [[0, 1, 2, 3], [8, 9]],
        [[4, 5, 6, 7], [0, 1, 2, 3]],
    ]


def test_keras_is_told_the_number_of_batches():
    with job(2, 3):
        assert int(shard(as_dataset(10)).batch(2).cardinality()) == 2
        assert int(shard(as_dataset(10), uneven="drop").cardinality()) == 3


def test_a_dataset_is_shuffled_anew_in_each_epoch():
    with job(1, 2):
        part = shard(as_dataset(40), shuffle=True, seed=3)
    epochs = [list(part.as_numpy_iterator()) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1, 40, 2))


def test_shards_are_disjoint_whatever_the_seeds_of_tensorflow():
    """A rank may seed TensorFlow by its rank, for its dropout."""
    seen = []
    for rank in range(2):
        tf.random.set_seed(rank)
        with job(rank, 2):
            part = shard(as_dataset(20), shuffle=True)
        seen.extend(part.as_numpy_iterator())
    assert sorted(seen) == list(range(20))


def test_a_buffer():
    with job(0, 2):
        part = list(shard(as_dataset(40), shuffle=2).as_numpy_iterator())
    # Through a buffer of 2, no element comes more than one place early.
    assert sorted(part) == list(range(0, 40, 2))
    assert all(value <= 2 * (i + 1) for i, value in enumerate(part))


def test_datasets_without_end():
    with job(1, 3):
        part = shard(as_dataset(4).repeat(), shuffle=3)
        assert int(part.cardinality()) == tf.data.INFINITE_CARDINALITY
        plain = shard(as_dataset(4).repeat())
        with pytest.raises(ValueError, match="size of a buffer"):
            shard(as_dataset(4).repeat(), shuffle=True)
    assert list(plain.take(4).as_numpy_iterator()) == [1, 0, 3, 2]


def test_datasets_of_unknown_length():
    dataset = as_dataset(7).filter(lambda _: True)
    with job(0, 2), pytest.raises(ValueError, match="assert_cardinality"):
        shard(dataset)
    known = dataset.apply(tf.data.experimental.assert_cardinality(7))
    assert [len(p) for p in shards(known, 2)] == [4, 4]
    with job(0, 1):
        assert shard(dataset) is dataset
        assert len(list(shard(dataset, shuffle=3))) == 7


@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        ((np.zeros(3), np.zeros(4)), ValueError, r"lengths \[3, 4\]"),
        (np.float32(3.0), ValueError, "without dimensions"),
        ([1, 2, 3], TypeError, "an object of type int"),
        ("file.csv", TypeError, "an object of type str"),
        ((), ValueError, "empty structure"),
        (iter([1]), TypeError, "list_iterator"),
    ],
)
def test_what_cannot_be_split(dataset, error, message):
    with job(0, 2), pytest.raises(error, match=message):
        shard(dataset)


def test_modes_that_do_not_exist():
    with job(0, 2), pytest.raises(ValueError, match="`uneven` must be"):
        shard(np.zeros(3), uneven="wrap")


@given(counts=st.lists(st.integers(0, 50), max_size=30), size=sizes)
def test_files_are_divided_evenly(counts, size):
    parts = divided(counts, size)
    assert len(parts) == size
    assert sorted(index for part in parts for index in part) == list(
        range(len(counts))
    )
    totals = [sum(counts[index] for index in part) for part in parts]
    # One file less, and the fullest would not be the fullest.
    assert max(totals) - min(totals) <= max(counts, default=0)


def write_records(folder, sizes):
    paths = []
    for number, size in enumerate(sizes):
        paths.append(folder / f"{number}.tfrecord")
        with tf.io.TFRecordWriter(str(paths[-1])) as writer:
            for element in range(size):
                writer.write(f"{number}-{element}".encode())
    return paths


def test_files_on_one_rank(tmp_path):
    paths = write_records(tmp_path, [3, 2])
    with job(0, 1):
        assert len(list(shard(files=paths))) == 5
        part = shard(files=str(tmp_path / "*.tfrecord"), shuffle=True, seed=1)
        assert len(set(part.as_numpy_iterator())) == 5
        lines = shard(tf.data.TextLineDataset, files=paths, lengths=[1, 1])
        assert int(lines.cardinality()) == 2


@pytest.mark.parametrize("rank", [0, 1])
def test_files_of_two_ranks_with_known_lengths(tmp_path, rank):
    paths = write_records(tmp_path, [4, 2, 2, 1])
    known = {"files": paths, "lengths": [4, 2, 2, 1]}
    with job(rank, 2):
        assert len(list(shard(**known))) == 5
        assert len(list(shard(**known, uneven="drop"))) == 4
        with pytest.raises(ValueError, match=r"would have \[5, 4\]"):
            shard(**known, uneven="error")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"files": "nowhere/*.tfrecord"}, "There are no files"),
        ({"files": ["a", "b"], "lengths": [1]}, "a number for each of 2 files"),
        ({"files": ["a", "b"], "lengths": [0, 0]}, "There are no elements"),
        ({"files": ["a", "b"], "lengths": [0, 1]}, "only 1 of them have"),
        ({"lengths": [1]}, "`lengths` are those of `files`"),
    ],
)
def test_files_that_cannot_be_divided(arguments, message):
    with job(0, 2), pytest.raises(ValueError, match=message):
        shard(**arguments)
