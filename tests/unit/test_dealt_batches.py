"""Batches that are dealt out, in one process that stands for a rank."""

import contextlib
import itertools
import logging
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from keras_ring.core import generations
from keras_ring.data import batches
from keras_ring.keras.data import dealt_batches
from tests.unit.test_sharded_batches import Numbers


@contextlib.contextmanager
def job(rank, size, **functions):
    """A job of whose ranks none is lost, unless `functions` say so."""
    topology = types.SimpleNamespace(rank=rank, size=size, generation=0)
    functions.setdefault("tell", lambda key, text, generation: True)
    with (
        mock.patch("keras_ring.core.topology.topology", lambda: topology),
        mock.patch.multiple(generations, **functions),
    ):
        yield


def read(data):
    return [
        np.asarray(batch).tolist()
        for batch in tf.data.Dataset.as_numpy_iterator(data)
    ]


def test_ranks_take_turns():
    taken = []
    for rank in range(3):
        with job(rank, 3):
            taken.append(read(batches(np.arange(10), 2)))
    assert taken == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [0, 1]]]
    with job(2, 3):
        assert read(batches(np.arange(10), 2, uneven="drop")) == [[4, 5]]


@pytest.mark.parametrize("kind", ["rows", "batches"])
def test_each_epoch_has_an_order_of_its_own(kind):
    epochs = [[], [], []]
    for rank in range(2):
        with job(rank, 2):
            data = (
                batches(Numbers(8), shuffle=True, seed=3)
                if kind == "batches"
                else batches(np.arange(8), 1, shuffle=True, seed=3)
            )
            for epoch in epochs:
                epoch.append([number for (number,) in read(data)])
    for epoch in epochs:
        assert sorted(itertools.chain(*epoch)) == list(range(8))
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_dataset_is_told_of_epochs():
    numbers = Numbers(4)
    with job(0, 2):
        data = batches(numbers)
        for _ in range(3):
            assert read(data) == [[0], [2]]
    assert numbers.epochs == [3, 3]


def test_structures():
    lists = ([np.arange(4), np.arange(4.0)], {"y": np.array(["a"] * 4)})
    with job(0, 1):
        ((x, z), y), _ = batches(lists, 2)
    assert x.numpy().tolist() == [0, 1]
    assert z.numpy().tolist() == [0.0, 1.0]
    assert y["y"].numpy().tolist() == [b"a", b"a"]


def test_what_is_given_up_is_dealt_out_again():
    """Rank 1 of 2 is lost while this rank trains on its first batch."""
    told = []
    steps = [generations.Steps(0, 0, 0)]
    held = {}

    def tell(key, text, generation):
        held[generation] = text
        return generation == len(told)

    with job(
        0,
        2,
        tell=tell,
        told_after=lambda after, key: [
            each for each in told if each.generation > after
        ],
        steps=lambda: steps[-1],
    ):
        taken = iter(batches(np.arange(5), 1))
        assert next(taken).numpy() == [0]
        told.append(generations.Told(1, (0,), (held[0],)))
        # The step counts without the share of rank 1.
        steps.append(generations.Steps(1, 0, 1))
        assert next(taken).numpy() == [1]
        # This one does not count at all.
        steps.append(generations.Steps(1, 1, 1))
        assert next(taken).numpy() == [1]
        steps.append(generations.Steps(2, 1, 1))
        assert [int(each[0]) for each in taken] == [2, 3, 4]


def test_ranks_that_are_far_apart_are_told(caplog):
    held = [dealt_batches._HELD.pack(number, 0) for number in (7, 4)]
    late = generations.Told(1, (0, 2), tuple(held))
    calls = iter([[], [late], *[[]] * 100])
    with job(0, 2, told_after=lambda after, key: next(calls, [])):
        with caplog.at_level(logging.WARNING):
            read(batches(np.arange(2), 1))
    assert "3 batches of a `kr.data.batches` apart" in caplog.text


def test_two_loops_at_once():
    with job(0, 1):
        data = batches(np.arange(4), 1)
        first, second = iter(data), iter(data)
        next(first)
        next(second)
        with pytest.raises(tf.errors.UnknownError, match="Two loops read one"):
            next(first)


@pytest.mark.parametrize(
    ("data", "arguments", "error"),
    [
        (np.arange(4), {}, "`batch_size` must be at least 1"),
        (np.arange(4), {"batch_size": 0}, "`batch_size` must be at least 1"),
        ((np.arange(4), np.arange(3)), {"batch_size": 1}, "have the same len"),
        (Numbers(None), {}, "needs an end"),
        (Numbers(4), {"batch_size": 2}, "makes its batches itself"),
        (np.arange(4), {"batch_size": 1, "uneven": "error"}, "`uneven` must"),
    ],
)
def test_what_cannot_be_dealt_out(data, arguments, error):
    with job(0, 1), pytest.raises(ValueError, match=error):
        batches(data, **arguments)


def test_other_data():
    with job(0, 1), pytest.raises(TypeError, match="Received, in it, an obj"):
        batches([1, 2, 3], 1)


def _some(data, count):
    """Leaves a loop after some batches of one row; returns these."""
    batches_of_one = itertools.islice(iter(data), count)
    return [int(batch[0]) for batch in batches_of_one]


def _told(number, members):
    """Returns a `told_after` of ranks that had nothing to tell."""
    told = generations.Told(number, members, (b"",) * len(members))
    return lambda after, key: [told] if after < number else []


def test_a_loop_that_was_left_goes_on():
    with job(0, 2):
        data = batches(np.arange(12), 1, shuffle=True)
        first = _some(data, 3)
        dealt_batches.pause()
        dealt_batches.pause()  # nothing is left a second time
        rest = [number for (number,) in read(data)]
        another = [number for (number,) in read(data)]
    assert (len(first), len(rest), len(another)) == (3, 3, 6)
    assert not set(first) & set(rest)
    # A loop that was left without that is not gone on with.
    with job(0, 2):
        data = batches(np.arange(12), 1)
        assert len(list(itertools.islice(iter(data), 3))) == 3
        assert len(read(data)) == 6


def test_an_epoch_of_which_nothing_is_left_is_not_gone_on_with():
    with job(0, 1):
        data = batches(np.arange(4), 2)
        assert len(list(itertools.islice(iter(data), 2))) == 2
        dealt_batches.pause()
        assert read(data) == [[0, 1], [2, 3]]
        assert read(data) == [[0, 1], [2, 3]]


def test_who_comes_in_goes_on_with_the_others():
    with job(0, 2):
        data = batches(np.arange(12), 1, shuffle=True)
        read(data)  # one epoch is over
        first = _some(data, 2)
        dealt_batches.pause()
        number, positions = dealt_batches._dealers.positions()
        position = positions[f"batches/{number - 1}"]
    assert len(position.free) == 12 - 2 * 2
    # Rank 2, which was alone until now, and has looked at its data.
    topology = types.SimpleNamespace(rank=0, size=1, generation=0)
    with (
        mock.patch("keras_ring.core.topology.topology", lambda: topology),
        mock.patch.multiple(
            generations,
            tell=lambda key, text, generation: True,
            told_after=_told(1, (0, 1, 2)),
        ),
    ):
        topology.generation, topology.rank, topology.size = 1, 2, 3
        data = batches(np.arange(12), 1, shuffle=True)
        key = f"batches/{dealt_batches._dealers.positions()[0] - 1}"
        dealt_batches._dealers.go_on(100, {key: position})
        mine = [number for (number,) in read(data)]
        # The second epoch has an order of its own.
        rows = np.random.default_rng([0, 1]).permutation(12)
        third, sixth = position.free[2], position.free[5]
        assert mine == [rows[third], rows[sixth], rows[0]]
        assert not set(mine[:2]) & set(first)
        assert len(read(data)) == 4  # the next epoch, of 12 by 3
    assert dealt_batches._dealers.positions()[0] == 100


def test_a_place_is_given_from_within_a_loop():
    """The loop goes on, and whoever comes in goes on with the same epoch."""

    def rank(number):
        return (
            mock.patch.object(dealt_batches, "_dealers", dealers[number]),
            job(number, 2),
        )

    dealers = [dealt_batches._Dealers(), dealt_batches._Dealers()]
    with contextlib.ExitStack() as stack:
        for each in rank(0):
            stack.enter_context(each)
        data = batches(np.arange(10), 1)
        before = dealers[0].positions()
        loop = tf.data.Dataset.as_numpy_iterator(data)
        mine = [int(next(loop)[0]) for _ in range(2)]
        given = dealers[0].positions()
        mine += [int(number) for (number,) in loop]
        next_epoch = [int(number) for (number,) in read(data)]
    assert mine == next_epoch == [0, 2, 4, 6, 8]
    with contextlib.ExitStack() as stack:
        for each in rank(1):
            stack.enter_context(each)
        data = batches(np.arange(10), 1)
        # A loop of its own, before it has come in.
        next(tf.data.Dataset.as_numpy_iterator(data))
        dealers[1].go_on(*before)
        dealers[1].pause()
        assert dealers[1].positions() == before
        dealers[1].go_on(*given)
        assert [number for (number,) in read(data)] == [5, 7, 9]
        assert [number for (number,) in read(data)] == [1, 3, 5, 7, 9]


def test_nothing_tunes_dealt_batches():
    with job(0, 2):
        assert batches(np.arange(4), 1).options().autotune.enabled is False


@pytest.mark.parametrize("uneven", ["pad", "drop"])
def test_nobody_is_let_in_for_whom_nothing_is_left(uneven):
    dealers = dealt_batches._Dealers()
    with mock.patch.object(dealt_batches, "_dealers", dealers), job(0, 2):
        data = batches(np.arange(16), 1, uneven=uneven)
        loop = tf.data.Dataset.as_numpy_iterator(data)
        ends = [
            (dealers.is_any_at_end(), dealt_batches.are_left_for(1, data))
            for _ in loop
        ]
        # With several steps at once, Keras has read on to the end.
        assert not dealt_batches.are_left_for(1, data)
        assert not dealers.is_any_in_loop()
    # Of the 16, there are 14, 12 ... 0 left after each step of two ranks.
    assert [end for end, _ in ends] == [False] * 7 + [True]
    num_good = 7 if uneven == "pad" else 5
    good = [True] * num_good + [False] * (8 - num_good)
    assert [left for _, left in ends] == good
