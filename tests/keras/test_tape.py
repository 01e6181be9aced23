"""`DistributedGradientTape` on a ring of equal ranks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ring.core import reduce_ops
from keras_ring.keras.optimizer.tape import DistributedGradientTape
from keras_ring.tensorflow import commits
from keras_ring.tensorflow.compression import Compression


@pytest.fixture
def variables():
    return [
        keras.Variable([1.0, 2.0], name="a"),
        tf.Variable([3.0, 4.0], name="b"),
    ]


def loss_of(first, second):
    return tf.reduce_sum(first * first * second)


@pytest.mark.quick
def test_it_is_a_gradient_tape(ring, variables):
    tape = DistributedGradientTape(tf.GradientTape(persistent=True))
    assert isinstance(tape, tf.GradientTape)
    a, b = variables
    x = tf.constant([1.0, 1.0])
    with tape as entered:
        assert entered is tape
        tape.watch(x)
        with tape.stop_recording():
            constant = a * 2.0
        y = x * x + constant
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 2.0]
    assert tape.watched_variables() == ()
    assert tape.jacobian(y, x).numpy().tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert tape._persistent
    x = tf.ones((3, 2))
    with DistributedGradientTape(tf.GradientTape()) as tape:
        tape.watch(x)
        _ = x * b
        tape.reset()
        tape.watch(x)
        y = x * x
        assert tape.watched_variables() == ()
    assert tape.batch_jacobian(y, x).shape == (3, 2, 2)


def test_it_takes_a_tape():
    with pytest.raises(TypeError, match=r"tf\.GradientTape"):
        DistributedGradientTape(3)
    with pytest.raises(ValueError, match="`op` must be"):
        DistributedGradientTape(tf.GradientTape(), op="sum")
    with pytest.raises(ValueError, match="already"):
        DistributedGradientTape(DistributedGradientTape(tf.GradientTape()))


@pytest.mark.parametrize("inside", [False, True])
def test_gradients_are_reduced_and_those_of_the_inner_tape_are_not(
    ring, variables, inside
):
    a, b = variables
    local = tf.GradientTape(persistent=True)
    tape = DistributedGradientTape(local, op=reduce_ops.Sum)
    with tape if inside else local:
        loss = loss_of(a, b)
    reduced = tape.gradient(loss, variables)
    assert ring.names() == ["gradient/a+1"]
    for mine, whole in zip(
        local.gradient(loss, variables), reduced, strict=True
    ):
        np.testing.assert_array_equal(2.0 * mine.numpy(), whole.numpy())
    assert len(ring.calls) == 1


def test_one_rank_adds_nothing(ring, variables):
    ring.size = 1
    with DistributedGradientTape(tf.GradientTape(), op=reduce_ops.Sum) as tape:
        loss = loss_of(*variables)
    assert tape.gradient(loss, variables[0]).numpy().tolist() == [6.0, 16.0]
    assert ring.calls == []


def test_nested_sources(ring, variables):
    a, b = variables
    x = tf.constant([1.0, 1.0])
    unused = tf.Variable(1.0, name="unused")

    @tf.function
    def gradients():
        with DistributedGradientTape(tf.GradientTape()) as tape:
            tape.watch(x)
            loss = loss_of(a, b) + tf.reduce_sum(x)
        return tape.gradient(loss, {"p": [a, unused], "q": (b, {"r": x})})

    result = gradients()
    assert result["p"][1] is None
    assert result["p"][0].numpy().tolist() == [6.0, 16.0]
    assert result["q"][0].numpy().tolist() == [1.0, 4.0]
    assert result["q"][1]["r"].numpy().tolist() == [1.0, 1.0]
    assert ring.names() == ["gradient/a", "gradient/b", "gradient/source_3"]


def test_a_single_source(ring, variables):
    a, b = variables
    with DistributedGradientTape(tf.GradientTape()) as tape:
        loss = loss_of(a, b)
    assert tape.gradient(loss, b).numpy().tolist() == [1.0, 4.0]
    assert ring.names() == ["gradient/b"]


def test_output_gradients_and_unconnected_gradients(ring, variables):
    a, b = variables
    with DistributedGradientTape(tf.GradientTape()) as tape:
        y = a * a
    gradients = tape.gradient(
        y,
        [a, b],
        output_gradients=tf.constant([10.0, 1.0]),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    assert gradients[0].numpy().tolist() == [20.0, 4.0]
    assert gradients[1].numpy().tolist() == [0.0, 0.0]


def test_two_reductions_of_one_variable_in_one_graph(ring, variables):
    a = variables[0]

    @tf.function
    def gradients(x):
        with tf.GradientTape(persistent=True) as tape:
            first = tf.reduce_sum(a * x)
            second = tf.reduce_sum(a * a * x)
        tape = DistributedGradientTape(tape)
        return tape.gradient(first, a), tape.gradient(second, a)

    gradients(tf.ones(2))
    assert ring.names() == ["gradient/a", "gradient/a#1"]
    gradients(tf.ones((2, 2)))
    assert ring.names() == 2 * ["gradient/a", "gradient/a#1"]


def test_settings_reach_the_reduction(ring, variables):
    with DistributedGradientTape(
        tf.GradientTape(),
        compression=Compression.bf16,
        gradient_predivide_factor=2.0,
        groups=[[variables[1]]],
    ) as tape:
        loss = loss_of(*variables)
    tape.gradient(loss, variables)
    assert ring.names() == ["gradient/b", "gradient/a"]
    assert {c.options["compression"] for c in ring.calls} == {Compression.bf16}
    assert {c.options["prescale_factor"] for c in ring.calls} == {0.5}


@pytest.mark.parametrize("scaled", [True, False])
def test_gradients_of_local_sources_stay(ring, variables, scaled):
    with tf.GradientTape() as tape:
        loss = loss_of(*variables)
    tape = DistributedGradientTape(tape, scale_local_gradients=scaled)
    tape.register_local_source(variables[1])
    first, second = tape.gradient(loss, variables)
    assert first.numpy().tolist() == [6.0, 16.0]
    whole = np.array([1.0, 4.0])
    expected = whole / ring.size if scaled else whole
    np.testing.assert_allclose(second, expected)
    assert ring.names() == ["gradient/a"]


def test_only_a_variable_is_a_local_source(ring):
    tape = DistributedGradientTape(tf.GradientTape())
    with pytest.raises(ValueError, match="Only a variable"):
        tape.register_local_source(tf.constant(1.0))


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_sparse_gradients(ring, sparse_as_dense):
    table = tf.Variable(tf.ones((4, 2)), name="table")
    with DistributedGradientTape(
        tf.GradientTape(), op=reduce_ops.Sum, sparse_as_dense=sparse_as_dense
    ) as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 3, 1]))
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices) != sparse_as_dense
    if not sparse_as_dense:
        assert gradient.indices.numpy().tolist() == [1, 3]
        # Rows of one index were added up before they travelled.
        (call,) = ring.calls
        assert call.options["rows"] == [2, 2, 1]
    dense = tf.convert_to_tensor(gradient)
    assert dense.numpy()[:, 0].tolist() == [0.0, 4.0, 0.0, 2.0]


def test_gradients_of_a_compiled_loop(ring):
    """Autograph rewrites the loop, and must leave our code alone."""
    variable = tf.Variable(1.0, name="v")
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([variable])

    @tf.function
    def train(num):
        for _ in tf.range(num):
            with tf.GradientTape() as tape:
                loss = variable * 1.0
            tape = DistributedGradientTape(tape)
            optimizer.apply([tape.gradient(loss, variable)], [variable])

    train(tf.constant(3))
    assert float(variable) == -0.5
    assert set(ring.names()) == {"gradient/v"}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_step_that_does_not_count_is_left_out(
    ring, monkeypatch, compiled, parts
):
    counts = tf.Variable([True] * parts)
    calls = []

    def committed(group, results):
        calls.append(group)
        return tf.identity(counts[(len(calls) - 1) % parts])

    monkeypatch.setattr(commits, "committed", committed)
    weights = [keras.Variable([1.0, 2.0]), keras.Variable([[3.0]])]
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(weights)
    state = [*weights, *optimizer.variables]

    def step():
        total = None
        for _ in range(parts):
            with tf.GradientTape() as local:
                loss = sum(tf.reduce_sum(each * each) for each in weights)
            tape = DistributedGradientTape(local, elastic=True)
            gradients = tape.gradient(loss, weights)
            if total is not None:
                gradients = [
                    a + b for a, b in zip(total, gradients, strict=True)
                ]
            total = gradients
        optimizer.apply(total, weights)
        return total

    if compiled:
        step = tf.function(step)
    before = [each.numpy() for each in state]
    assert all(np.any(each) for each in step())
    after = [each.numpy() for each in state]
    assert not any(map(np.array_equal, weights, before))
    # The last part of a step does not count; then, all do again.
    counts.assign([True] * (parts - 1) + [False])
    gradients = step()
    if parts == 1:
        assert not any(np.any(each) for each in gradients)
    for each, value in zip(state, after, strict=True):
        np.testing.assert_array_equal(each, value)
    counts.assign([True] * parts)
    step()
    assert int(optimizer.iterations) == 2
    assert not any(map(np.array_equal, weights, after))
    assert len(set(calls)) == (parts if compiled else 1)
