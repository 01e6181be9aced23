"""How the index of a rank is folded into the state of a generator."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ring.keras.model import seeds


def test_no_two_indexes_have_the_same_mix():
    assert seeds.mix(0) == 0
    mixed = {seeds.mix(index) for index in range(5000)}
    assert len(mixed) == 5000
    # Of all 32 bits, about half are set.
    assert 15 < np.mean([bits.bit_count() for bits in mixed]) < 17


def test_the_finalizer_of_murmurhash3():
    # Of 1 and 2^32 - 1, from its reference implementation.
    assert seeds.mix(1) == 0x514E28B7
    assert seeds.mix(0xFFFFFFFF) == 0x81F16F39


@pytest.mark.parametrize("dtype", ["int64", "uint32", "int32"])
@pytest.mark.parametrize("seed", [0, 1337, 2**31 - 1])
def test_a_generator_of_keras(seed, dtype):
    state = np.array([seed, 7], dtype)
    before = state.copy()
    states = [
        seeds.folded(tf.constant(state), index).numpy() for index in range(100)
    ]
    assert (state == before).all()
    assert (states[0] == state).all()
    assert len({tuple(each) for each in states}) == 100
    assert [int(each[1]) for each in states] == [7 + p for p in range(100)]
    for index, each in enumerate(states):
        assert each.dtype == dtype
        word = int(each[0]) & 0xFFFFFFFF
        assert word == seed ^ seeds.mix(index)


def test_a_generator_of_tensorflow():
    generator = tf.random.Generator.from_seed(3)
    drawn = []
    for index in range(4):
        other = tf.random.Generator.from_seed(3)
        other.state.assign(seeds.folded(other.state.value(), index))
        assert (other.state[:2].numpy() == generator.state[:2].numpy()).all()
        drawn.append(other.normal([4]).numpy().tolist())
    assert drawn[0] == generator.normal([4]).numpy().tolist()
    assert len({tuple(each) for each in drawn}) == 4


def test_draws_without_a_seed_never_meet():
    """Keras puts both words through one permutation of few numbers."""
    one = keras.random.SeedGenerator(5)
    # A seed that is the same one below 933199.
    two = keras.random.SeedGenerator(5 + 933199)
    two.state.assign([5 + 933199, 1])
    for _ in range(50):
        drawn = one.next(ordered=False), two.next(ordered=False)
        assert not np.array_equal(*(np.array(each) for each in drawn))
    # It is a permutation, so second words that differ go on to differ.
    numbers = np.arange(933199, dtype=np.int64)
    assert len(np.unique((numbers + 1) * 5387 % 933199)) == 933199
