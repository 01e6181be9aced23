"""What ranks do in `test_divergence_on_ranks.py`. Each returns plain values."""

import os
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.agreement import fingerprints, looks

_STEPS = 20


def before_each_call():
    kr.init()
    # As often on a busy machine as on another one.
    looks._ALLOWANCE = 1e6
    # Names begin anew; to collect what calls leave takes a fifth of the time.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(5)


def _is_odd():
    return kr.rank() == 0


def _make_model():
    # Of as few variables as there are to be: their updates are traced.
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, "tanh", use_bias=False, name="hidden"),
            keras.layers.Dense(1, use_bias=False, name="out"),
        ]
    )


def _data(rows=8):
    x = np.random.default_rng(kr.rank()).normal(size=(rows, 3))
    return x.astype("float32"), x.sum(1, keepdims=True).astype("float32")


def _told(step, steps=_STEPS):
    """Returns how many steps were made until it was told, and what."""
    for made in range(steps):
        try:
            step()
        except Exception as error:
            return made, type(error).__name__, str(error)
    return steps, None, None


def _gradients(model):
    x, y = _data()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    return tape, loss, model.trainable_variables


def _reduced(model):
    tape, loss, weights = _gradients(model)
    return kr.DistributedGradientTape(tape).gradient(loss, weights), weights


def _make_step(model, optimizer, way):
    """Returns a step: by a tape of ours or by an optimizer of ours."""

    def by_optimizer():
        tape, loss, weights = _gradients(model)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )

    def by_tape():
        gradients, weights = _reduced(model)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    step = by_tape if "tape" in way else by_optimizer
    if "graph" in way or "jit" in way:
        step = tf.function(step, jit_compile="jit" in way)
    if "concrete" in way:
        step = tf.function(step).get_concrete_function()
    if "nested" in way:
        inner = tf.function(step)
        # Traced by itself before it is part of another function.
        inner()
        step = tf.function(lambda: inner())
    return step


def _optimizer(way, plain):
    return plain if "tape" in way else kr.DistributedOptimizer(plain)


def restored_on_one_rank(way, directory):
    """The state of the optimizer, before its variables are made."""
    path = os.path.join(directory, way.replace(" ", "_"))
    # On all ranks: each optimizer that is made has another number in its name.
    model, optimizer = _make_model(), keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    for variable in optimizer.variables:
        if len(variable.shape):
            variable.assign(np.full(variable.shape, 0.25))
    if _is_odd():
        tf.train.Checkpoint(optimizer=optimizer).write(path)
    kr.barrier()
    model = _make_model()
    optimizer = _optimizer(way, keras.optimizers.Adam(0.01))
    if _is_odd():
        tf.train.Checkpoint(optimizer=optimizer).read(path)
    kr.broadcast_variables(model.variables, 0)
    return _told(_make_step(model, optimizer, way))


def changed_in_a_loop(way, after):
    """The learning rate, once some steps are made."""
    model = _make_model()
    optimizer = _optimizer(way, keras.optimizers.SGD(0.01, 0.9))
    step = _make_step(model, optimizer, way)
    for _ in range(after):
        step()
    if _is_odd():
        optimizer.learning_rate = 0.5
    return _told(step)


def told_by_parts(change):
    """What one rank changes, where a look is at a part of what is trained.

    Returns:
        How many steps were made until it was told, what, and how many pieces
        each look was at.
    """
    model = _make_model()
    optimizer = kr.DistributedOptimizer(keras.optimizers.Adam(0.01))
    step = _make_step(model, optimizer, "graph")
    sizes = []
    of_pieces = fingerprints.of_pieces

    def noted(variables, pieces, values):
        sizes.append((len(pieces), len(variables)))
        return of_pieces(variables, pieces, values)

    with (
        # Three variables of eight, so there are three parts.
        mock.patch.object(looks, "_LEAST", 3 << 15),
        mock.patch.object(looks, "_SHARE", 1e-9),
        mock.patch.object(fingerprints, "of_pieces", noted),
    ):
        for _ in range(5):
            step()
        if _is_odd() and change == "rate":
            optimizer.learning_rate = 0.5
        if _is_odd() and change == "one weight":
            kernel = model.layers[-1].kernel
            kernel.assign(kernel + 1.0)
        told = _told(step, 100)
    return *told, sizes


def another_setting(way, setting):
    """Something that is in no variable differs from the beginning."""
    odd = _is_odd()
    plain = {
        "schedule": lambda: keras.optimizers.SGD(
            keras.optimizers.schedules.ExponentialDecay(
                0.1, 4, 0.5 if odd else 0.9
            )
        ),
        "weight decay": lambda: keras.optimizers.AdamW(
            0.01, weight_decay=0.1 if odd else 0.2
        ),
    }[setting]()
    model = _make_model()
    return _told(_make_step(model, _optimizer(way, plain), way))


_COMPILED = {
    "graph": {"jit_compile": False},
    "jit": {"jit_compile": True},
    "eager": {"run_eagerly": True},
    "steps": {"jit_compile": False, "steps_per_execution": 2},
}


def between_fits(change, then, compiled):
    """What rank 0 alone changes after a `fit` with the callback."""
    model = _make_model()
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.1, 0.9))
    model.compile(optimizer, "mse", **_COMPILED[compiled])
    x, y = _data()
    start = kr.callbacks.BroadcastGlobalVariablesCallback()
    model.fit(x, y, batch_size=1, verbose=0, callbacks=[start])
    if _is_odd() and change == "weights":
        model.set_weights([2 * each for each in model.get_weights()])
    if _is_odd() and change == "rate":
        model.optimizer.learning_rate = 0.01
    if then == "fit":
        return _told(lambda: model.fit(x, y, batch_size=1, verbose=0), 1)
    return _told(lambda: model.train_on_batch(x, y))


def allowed():
    """What ranks may have of their own: no error, and none waits."""
    model = _make_model()
    own = model.layers[0]
    own.kernel.assign(own.kernel + float(kr.rank()))
    optimizer = kr.PartialDistributedOptimizer(
        keras.optimizers.Adam(0.01), local_layers=own
    )
    told = [_told(_make_step(model, optimizer, ""))]
    # Left out by the callback.
    model = _make_model()
    model.compile(kr.DistributedOptimizer("adam"), "mse")
    (frozen, *_) = model.trainable_variables
    frozen.assign(frozen + float(kr.rank()))
    start = kr.callbacks.BroadcastGlobalVariablesCallback(
        local_variables=[frozen]
    )
    x, y = _data()
    told.append(
        _told(
            lambda: model.fit(x, y, batch_size=2, verbose=0, callbacks=[start]),
            2,
        )
    )
    with kr.allow_local_updates():
        model, optimizer = _make_model(), keras.optimizers.Adam(0.01)
        optimizer.learning_rate = 0.1 * (1 + kr.rank())

        def alone():
            tape, loss, weights = _gradients(model)
            optimizer.apply(tape.gradient(loss, weights), weights)

        told.append(_told(alone))
    return told


def passes_of_one_rank_more():
    """Gradients are added up, by one rank once more at the end."""
    model = _make_model()
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(0.01, 0.9), backward_passes_per_step=3
    )
    step = _make_step(model, optimizer, "graph")
    return _told(step, 12 + kr.rank())[1:]


def steps_without_reduction():
    """Each rank has a number of its own of steps that share nothing."""
    model, optimizer = _make_model(), keras.optimizers.SGD(0.1)

    @tf.function
    def step(is_last):
        if not is_last:
            tape, loss, weights = _gradients(model)
            return tf.add_n(
                [tf.reduce_sum(g) for g in tape.gradient(loss, weights)]
            )
        gradients, weights = _reduced(model)
        optimizer.apply(gradients, weights)
        return tf.constant(0.0)

    def steps():
        for _ in range(kr.rank()):
            step(False)
        step(True)

    return _told(steps)


def traced_again_by_one_rank():
    model = _make_model()
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.01, 0.9))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)

    rows = iter(range(1, 100))

    def step_of_another_size():
        step(tf.ones((next(rows) if kr.rank() else 4, 3)))

    return _told(step_of_another_size)


def same_results():
    """The weights after some steps, and how often ranks have compared."""
    model = _make_model()
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.01, 0.9))
    step = _make_step(model, optimizer, "graph")
    before = kr.metrics()["entries"]
    for _ in range(2):
        step()
    first = kr.metrics()["entries"] - before
    before = kr.metrics()["entries"]
    for _ in range(16):
        step()
    entries = kr.metrics()["entries"] - before
    return first, entries, [each.tolist() for each in model.get_weights()]
