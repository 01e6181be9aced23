"""The number of ranks in graphs of an elastic job; without ranks."""

import pytest
import tensorflow as tf

import keras_ring as kr
from keras_ring.core import topology
from keras_ring.tensorflow import topology_ops

_SET = kr.ProcessSet([0, 1, 2, 3])


@pytest.fixture
def elastic(monkeypatch):
    monkeypatch.setattr(topology, "is_elastic", lambda: True)


def _traced(function, **options):
    found = []
    traced = tf.function(lambda: found.append(function()), **options)
    traced.get_concrete_function()
    return found[0]


def test_it_is_a_constant_in_other_jobs():
    size = _traced(lambda: topology_ops.size_in_graph(_SET))
    assert size == topology_ops.static_size(_SET) == 4
    assert isinstance(size, int)
    assert _traced(lambda: topology_ops.mean_factor(_SET, 2.0)) == 0.5


@pytest.mark.usefixtures("elastic")
def test_it_is_a_number_where_nothing_is_traced():
    assert topology_ops.size_in_graph(_SET) == 4


@pytest.mark.usefixtures("elastic")
def test_xla_cannot_compile_it():
    with pytest.raises(NotImplementedError, match="jit_compile=False"):
        _traced(lambda: topology_ops.size_in_graph(_SET), jit_compile=True)
