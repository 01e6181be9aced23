"""Updates with gradients that nobody reduced are found at the first step."""

import _thread
import queue
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ring.errors import LocalUpdateError
from keras_ring.keras.optimizer import local_updates, reduction_guard
from keras_ring.keras.optimizer.local_updates import allow_local_updates
from keras_ring.keras.optimizer.optimizer import DistributedOptimizer
from keras_ring.keras.optimizer.tape import DistributedGradientTape

LOCAL = "gradients of this rank alone"


@pytest.fixture(autouse=True)
def installed():
    reduction_guard.install()


def make_model(optimizer, **arguments):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer, keras.losses.MeanSquaredError(), **arguments)
    return model


def fit(model):
    x = np.ones((4, 2), "float32")
    model.fit(x, x[:, :1], batch_size=2, verbose=0)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_fit_with_a_plain_optimizer(ring, policy, run_eagerly):
    keras.config.set_dtype_policy(policy)
    model = make_model("sgd", run_eagerly=run_eagerly)
    before = model.get_weights()
    with pytest.raises(LocalUpdateError, match=r"kr\.DistributedOptimizer"):
        fit(model)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_fit_with_a_distributed_optimizer(ring):
    fit(make_model(DistributedOptimizer("sgd")))


def test_the_inner_optimizers_of_a_distributed_one_are_fine(ring):
    def optimizer():
        return keras.optimizers.MultiOptimizer(
            keras.optimizers.OptimizerMap(keras.optimizers.SGD())
        )

    with pytest.raises(LocalUpdateError):
        fit(make_model(optimizer()))
    fit(make_model(DistributedOptimizer(optimizer())))


def test_one_rank_may_do_what_it_likes(ring):
    ring.size = 1
    fit(make_model("sgd"))


def test_before_init_there_is_no_job(ring, monkeypatch):
    def size():
        raise AssertionError("asked for the size of no job")

    monkeypatch.setattr(
        "keras_ring.core.topology.is_initialized", lambda: False
    )
    monkeypatch.setattr("keras_ring.core.topology.size", size)
    fit(make_model("sgd"))


def test_the_switch(ring):
    with allow_local_updates():
        fit(make_model("sgd"))
    with pytest.raises(LocalUpdateError, match="allow_local_updates"):
        fit(make_model("sgd"))


def test_the_switch_does_not_stop_reductions(ring):
    with allow_local_updates():
        fit(make_model(DistributedOptimizer("sgd")))
    assert ring.calls


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize(
    "wrap", [lambda o: o, keras.optimizers.LossScaleOptimizer]
)
def test_a_loop_with_a_tape(ring, compiled, distributed, wrap):
    keras_variable = keras.Variable([1.0], name="k")
    variable = tf.Variable([1.0], name="v")
    optimizer = wrap(keras.optimizers.SGD(0.1))
    optimizer.build([keras_variable, variable])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(keras_variable * variable)
        if distributed:
            tape = DistributedGradientTape(tape)
        sources = [keras_variable, variable]
        gradients = tape.gradient(loss, sources)
        # New tensors, which know nothing of where they come from.
        gradients = [tf.clip_by_norm(g, 1.0) for g in gradients]
        # Optimizers see the variable inside as well as the one of Keras.
        optimizer.apply(gradients, [keras_variable.value, variable])

    if compiled:
        step = tf.function(step)
    if distributed:
        step()
        step()
    else:
        with pytest.raises(LocalUpdateError, match=LOCAL):
            step()


def test_a_variable_that_was_left_out_is_named(ring):
    one, two = (tf.Variable(1.0, name=n) for n in ("one", "two"))
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([one, two])
    with tf.GradientTape(persistent=True) as tape:
        loss = one * two
    whole = DistributedGradientTape(tape).gradient(loss, one)
    optimizer.apply([whole], [one])
    with pytest.raises(LocalUpdateError, match="'two'"):
        optimizer.apply([whole, tape.gradient(loss, two)], [one, two])


def gradients_of(loss_of, variables, distributed):
    with tf.GradientTape() as tape:
        loss = loss_of(*variables)
    if distributed:
        tape = DistributedGradientTape(tape)
    # New tensors, which know nothing of where they come from.
    return [tf.clip_by_norm(g, 1.0) for g in tape.gradient(loss, variables)]


@pytest.fixture
def pair():
    variables = [tf.Variable(1.0, name="one"), tf.Variable(2.0, name="two")]
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(variables)
    return variables, optimizer


def product(a, b):
    return a * b


@pytest.mark.parametrize("compiled", [False, True])
def test_a_variable_is_not_reduced_for_ever(ring, pair, compiled):
    variables, optimizer = pair

    def step(distributed):
        gradients = gradients_of(product, variables, distributed)
        optimizer.apply(gradients, variables)

    if compiled:
        step = tf.function(step)
    step(True)
    step(True)
    with pytest.raises(LocalUpdateError, match=LOCAL):
        step(False)
    with pytest.raises(LocalUpdateError, match=LOCAL):
        optimizer.apply(gradients_of(product, variables, False), variables)


def test_gradients_may_come_out_of_a_function(ring, pair):
    variables, optimizer = pair
    gradients = tf.function(lambda: gradients_of(product, variables, True))
    for _ in range(3):
        optimizer.apply(gradients(), variables)

    @tf.function
    def step():
        optimizer.apply(gradients(), variables)

    step()


def test_gradients_may_go_into_a_function(ring, pair):
    variables, optimizer = pair
    step = tf.function(lambda *g: optimizer.apply(list(g), variables))
    for _ in range(3):
        step(*gradients_of(product, variables, True))


def test_two_optimizers_may_apply_a_gradient(ring, pair):
    variables, optimizer = pair
    other = keras.optimizers.SGD(0.2)
    other.build(variables)
    gradients = gradients_of(product, variables, True)
    optimizer.apply(gradients, variables)
    other.apply(gradients, variables)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "wrap", [lambda o: o, keras.optimizers.LossScaleOptimizer]
)
def test_tape_and_optimizer_together(ring, pair, compiled, wrap):
    variables, optimizer = pair
    optimizer = DistributedOptimizer(wrap(optimizer))

    def step(distributed):
        gradients = gradients_of(product, variables, distributed)
        optimizer.apply(gradients, variables)

    if compiled:
        step = tf.function(step)
    step(False)
    with pytest.raises(ValueError, match="'one' comes from a `Distributed"):
        step(True)


def test_a_tape_may_look_at_what_an_optimizer_reduces(ring, pair):
    variables, optimizer = pair
    DistributedOptimizer(optimizer)

    @tf.function
    def step():
        norm = tf.linalg.global_norm(gradients_of(product, variables, True))
        optimizer.apply(gradients_of(product, variables, False), variables)
        return norm

    assert np.isfinite(step().numpy())


def test_installing_twice_changes_nothing():
    before = keras.optimizers.Optimizer.apply
    reduction_guard.install()
    assert keras.optimizers.Optimizer.apply is before


def test_threads_of_a_framework_see_local_updates():
    """They are not made in Python, and have no context."""

    def found_by(start):
        found = queue.Queue()
        start(lambda: found.put(local_updates.are_allowed_in_backward()))
        return found.get(timeout=60)

    def by_framework(look):
        _thread.start_new_thread(look, ())

    def by_program(look):
        threading.Thread(target=look).start()

    assert not found_by(by_framework)
    with local_updates.allow_local_updates():
        assert found_by(by_framework)
        assert not found_by(by_program)
        assert local_updates.are_allowed_in_backward()
    assert not found_by(by_framework)
