"""Keras 2: trainings that come apart, and classes of a program's own."""

import os
import subprocess
import sys

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.agreement import looks
from tests.harness.set_known import set_known
from tests.keras2.models import dense, make_numbers

keras = tf.keras
legacy = keras.optimizers.legacy

_FAMILIES = {"new": keras.optimizers, "legacy": legacy}


def _told(step, steps=12):
    """Returns how many steps were made until it was told, and what."""
    for made in range(steps):
        try:
            step()
        except Exception as error:
            return made, type(error).__name__, str(error)
    return steps, None, None


def _mine():
    x, y = make_numbers(16)
    return x[kr.rank() :: kr.size()], y[kr.rank() :: kr.size()]


def changed_between_fits(kind, change):
    """Rank 0 alone changes something after a `fit` with the callback."""
    keras.utils.set_random_seed(5)
    model = dense()
    optimizer = _FAMILIES[kind].Adam(0.01)
    model.compile(kr.DistributedOptimizer(optimizer), "mse")
    x, y = _mine()
    start = kr.callbacks.BroadcastGlobalVariablesCallback()
    model.fit(x, y, batch_size=2, verbose=0, callbacks=[start])
    if kr.rank() == 0 and change == "rate":
        model.optimizer.learning_rate = 0.5
    if kr.rank() == 0 and change == "weights":
        model.set_weights([2 * each for each in model.get_weights()])
    return _told(lambda: model.fit(x, y, batch_size=2, verbose=0), 1)


def changed_in_a_tape_loop(kind):
    """What rank 0 alone has in the slots of a plain optimizer."""
    keras.utils.set_random_seed(5)
    model = dense()
    optimizer = _FAMILIES[kind].SGD(0.1, momentum=0.9)
    x, y = _mine()
    # As often on a busy machine as on another one.
    set_known(looks, "_ALLOWANCE", 1e6)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        weights = model.trainable_variables
        tape = kr.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    for _ in range(3):
        step()
    if kr.rank() == 0:
        variables = optimizer.variables
        variables = variables() if callable(variables) else variables
        for variable in variables:
            if len(variable.shape):
                variable.assign(tf.ones_like(variable))
    return _told(step)


def _normalized(pairs):
    return [(g / (1e-3 + tf.norm(g)), v) for g, v in pairs]


def class_of(kind, method):
    base = _FAMILIES[kind].SGD
    if kind == "legacy" and method == "compute_gradients":
        method = "_compute_gradients"

    class Own(base):
        pass

    def changes_what_it_returns(self, *args, **kwargs):
        return _normalized(getattr(base, method)(self, *args, **kwargs))

    def changes_what_it_gets(self, pairs, *args, **kwargs):
        return base.apply_gradients(self, _normalized(pairs), *args, **kwargs)

    def minimize(self, loss, var_list, tape=None):
        gradients = tape.gradient(loss, var_list)
        pairs = zip(gradients, var_list, strict=True)
        return self.apply_gradients(_normalized(pairs))

    functions = {
        "apply_gradients": changes_what_it_gets,
        "minimize": minimize,
    }
    setattr(Own, method, functions.get(method, changes_what_it_returns))
    return Own


def own_methods(kind, method):
    """Returns by how much weights differ from those of one process."""
    keras.utils.set_random_seed(5)
    model, alone = dense(), dense()
    alone.set_weights(model.get_weights())
    kr.broadcast_variables(model.variables, 0)
    kr.broadcast_variables(alone.variables, 0)
    optimizer = kr.DistributedOptimizer(class_of(kind, method)(0.1))
    model.compile(optimizer, "mse")
    x, y = _mine()
    every, wanted = make_numbers(16)
    for _ in range(3):
        model.train_on_batch(x, y)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((alone(every) - wanted) ** 2)
        weights = alone.trainable_variables
        pairs = zip(tape.gradient(loss, weights), weights, strict=True)
        for gradient, weight in _normalized(pairs):
            weight.assign_sub(0.1 * gradient)
    return max(
        float(np.abs(a - b).max())
        for a, b in zip(model.get_weights(), alone.get_weights(), strict=True)
    )


def own_methods_and_passes(kind, method):
    """Returns how a method that changes gradients of one pass is refused."""
    optimizer = kr.DistributedOptimizer(
        class_of(kind, method)(0.1), backward_passes_per_step=2
    )
    model = dense()
    model.compile(optimizer, "mse")
    try:
        model.train_on_batch(*_mine())
    except ValueError as error:
        return str(error)
    return "trained"


_SERVES = """
import sys
sys.modules["keras_ring"] = None
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1])
rows = tf.constant([[1.0, 2.0, 3.0, 4.0]])
print("served", served.signatures["serving_default"](rows).values())
"""


def served(directory, kind):
    """Saves a model; returns how a program without keras_ring loads it."""
    keras.utils.set_random_seed(5)
    layer = (
        kr.SyncBatchNormalization()
        if kind == "ours"
        else keras.layers.BatchNormalization(synchronized=True)
    )
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), layer])
    model.compile(kr.DistributedOptimizer("sgd"), "mse")
    x = np.random.default_rng(kr.rank()).normal(size=(8, 4)).astype("float32")
    start = kr.callbacks.BroadcastGlobalVariablesCallback()
    model.fit(x, x[:, :3], batch_size=4, verbose=0, callbacks=[start])
    if kr.rank():
        return None
    path = os.path.join(directory, f"served_{kind}")
    model.save(path, save_format="tf")
    own = {k: v for k, v in os.environ.items() if "KERAS_RING" not in k}
    done = subprocess.run(
        [sys.executable, "-c", _SERVES, path],
        capture_output=True,
        text=True,
        env=own,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr[-2000:]
