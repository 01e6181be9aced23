"""What ranks do in `test_updates_on_ranks.py`. Each returns plain values."""

import keras
import numpy as np
import rank_migration
import rank_own_methods
import rank_weighted
import tensorflow as tf

import keras_ring as kr

MORE_CALLS = [rank_migration, rank_own_methods, rank_weighted]


def before_each_call():
    kr.init()
    # To collect what was before takes a quarter of a second.
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy("float32")
    # Each rank has initial weights of its own.
    keras.utils.set_random_seed(11 + kr.rank())


def error_of(function):
    """Returns the class and the text of what a function raises."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def make_model(optimizer=None, **settings):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, name="dense")], name="model"
    )
    if optimizer is not None:
        model.compile(optimizer, keras.losses.MeanSquaredError(), **settings)
    return model


def fit(model, rows=8, callbacks=()):
    x = np.ones((rows, 3), "float32") * (1 + kr.rank())
    model.fit(
        x,
        x[:, :2],
        batch_size=2,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )


def values(model):
    return [weight.tolist() for weight in model.get_weights()]


SETTINGS = {
    "graph": {"jit_compile": False},
    "jit": {"jit_compile": True},
    "eager": {"run_eagerly": True},
    "steps": {"steps_per_execution": 2, "jit_compile": False},
    "auto": {},
}


def forgotten_callback(case):
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model = make_model(optimizer, **SETTINGS[case])
    before = values(model)
    failed = error_of(lambda: fit(model))
    unchanged = values(model) == before
    # The callback has its turn before the comparison.
    with_callback = make_model(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), **SETTINGS[case]
    )
    share = kr.callbacks.BroadcastGlobalVariablesCallback()
    fit(with_callback, callbacks=[share])
    return failed, unchanged, values(with_callback)


def forgotten_with_mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=2
    )
    return error_of(lambda: fit(make_model(optimizer)))


def one_rank_traces_again():
    """A smaller last batch on one rank: there alone, a second trace."""
    model = make_model(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), jit_compile=False
    )
    share = kr.callbacks.BroadcastGlobalVariablesCallback()
    fit(model, rows=8 - kr.rank(), callbacks=[share])
    # A training that goes on, without the callback, is not compared again.
    fit(model)
    return values(model)


def local_variables():
    """What each rank trains on its own may differ from the beginning."""
    own = keras.layers.Dense(2, name="own")
    model = keras.Sequential(
        [keras.Input((3,)), own, keras.layers.Dense(2, name="shared")]
    )
    kr.broadcast_variables(model.layers[1].variables, root_rank=0)
    model.compile(
        kr.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.1), local_layers=own
        ),
        keras.losses.MeanSquaredError(),
    )
    fit(model)
    return values(model)


class Tape:
    """A loop with a tape, eagerly or compiled."""

    def __init__(self, *, compiled):
        self.model = make_model()
        self.optimizer = keras.optimizers.SGD(0.1)
        if compiled:
            self.step = tf.function(self.step)

    def step(self, first=False):
        x = tf.ones((2, 3)) * (1.0 + kr.rank())
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.model(x) ** 2)
        tape = kr.DistributedGradientTape(tape)
        weights = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        if first:
            kr.broadcast_variables(self.model.variables, root_rank=0)
            kr.broadcast_variables(self.optimizer.variables, root_rank=0)
        return loss


def tapes(compiled):
    forgotten = Tape(compiled=compiled)
    forgotten.step()
    failed = error_of(forgotten.step)
    # As in the examples of Horovod, in the step or after it.
    inside = Tape(compiled=compiled)
    for number in range(3):
        inside.step(number == 0)
    after = Tape(compiled=compiled)
    for number in range(3):
        after.step()
        if number == 0:
            kr.broadcast_variables(after.model.variables, root_rank=0)
    before = Tape(compiled=compiled)
    kr.broadcast_variables(before.model.variables, root_rank=0)
    for _ in range(2):
        before.step()
    trained = [values(each.model) for each in (inside, after, before)]
    return failed, trained


def _another_model(rate=0.1):
    """Rank 0 has made layers before, so its paths have other numbers."""
    if kr.rank() == 0:
        keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(1),
                kr.SyncBatchNormalization(),
            ]
        ).summary(print_fn=str)
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4),
            kr.SyncBatchNormalization(),
            keras.layers.Dense(2),
        ]
    )
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(rate))
    return model, optimizer


def numbered_otherwise(case):
    """A model whose variables have other paths on each rank."""
    model, optimizer = _another_model()
    if case == "fit":
        model.compile(optimizer, keras.losses.MeanSquaredError())
        share = kr.callbacks.BroadcastGlobalVariablesCallback()
        fit(model, callbacks=[share])
        return model.layers[0].path, values(model)
    # In loops, variables alone are shared, and this layer has names as well.
    model.layers[1].trainable = False
    kr.broadcast_variables(model.variables, root_rank=0)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        weights = model.trainable_variables
        if case == "tape":
            gradients = kr.DistributedGradientTape(tape).gradient(loss, weights)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.assign_sub(0.1 * gradient)
        else:
            optimizer.apply(tape.gradient(loss, weights), weights)

    step = step if case == "eager" else tf.function(step)
    for _ in range(3):
        step(tf.ones((2, 3)) * (1.0 + kr.rank()))
    return model.layers[0].path, values(model)


def another_model():
    """Rank 1 has more units."""
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2 + kr.rank(), name="dense")]
    )
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.1))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.ones((2, 3))) ** 2)
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)

    return error_of(step)


def variables_made_in_the_function():
    weights = []

    @tf.function
    def step():
        if not weights:
            weights.append(tf.Variable([1.0 + kr.rank()], name="w"))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights[0] ** 2)
        (gradient,) = kr.DistributedGradientTape(tape).gradient(loss, weights)
        weights[0].assign_sub(0.1 * gradient)

    step()
    return error_of(step)


def joined_before_the_first_step():
    """Rank 0 has no data at first; then all have some."""
    model = make_model()
    kr.broadcast_variables(model.variables, root_rank=0)
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        tape = kr.DistributedGradientTape(tape)
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)

    for batches in (2 * kr.rank(), 1):
        for _ in range(batches):
            step(tf.ones((2, 3)))
        last = kr.join()
        kr.broadcast_variables(model.variables, root_rank=last)
    return values(model)
