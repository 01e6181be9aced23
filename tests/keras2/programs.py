"""Programs that people write with Keras 2. Each trains, for `rank_keras2.py`.

In float64, but for those in half precision; on one rank, the whole batch.
"""

import copy

import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.keras2 import models
from tests.keras2.counting import Counted
from tests.keras2.models import BATCH_SIZE, STEPS, make_numbers, of_this_rank

keras = tf.keras
legacy = keras.optimizers.legacy

KINDS = {
    "new": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "legacy": lambda: legacy.SGD(0.05, momentum=0.9),
}
FITS = {
    "custom train_step": (models.OwnStep, {}),
    "frozen layer": (models.partly_frozen, {}),
    "unused variables": (models.WithUnused, {}),
    "clone_model": (models.cloned, {}),
    "steps_per_execution": (models.dense, {"steps_per_execution": 5}),
    "run_eagerly": (models.dense, {"run_eagerly": True}),
    "jit_compile": (models.dense, {"jit_compile": True}),
}
# Name: policy, model, whether a `LossScaleOptimizer` is given.
HALVES = {
    "mixed_float16": ("mixed_float16", models.dense, False),
    "mixed_float16 given": ("mixed_float16", models.dense, True),
    "mixed_float16 train_step": ("mixed_float16", models.OwnScaledStep, True),
    "mixed_bfloat16": ("mixed_bfloat16", models.dense, False),
}


def fits(name, kind):
    """One `fit` of a model."""
    _in_float64()
    make, settings = FITS[name]
    model = make()
    model.compile(_distributed(KINDS[kind]()), "mse", **settings)
    with Counted() as counted:
        _fit(model, make_numbers(STEPS * BATCH_SIZE))
    return _result(model.variables, model.optimizer, counted)


def half(name, kind):
    """The loss scale grows twice, where it is given."""
    policy, make, given = HALVES[name]
    keras.mixed_precision.set_global_policy(policy)
    optimizer = KINDS[kind]()
    if given:
        optimizer = keras.mixed_precision.LossScaleOptimizer(
            optimizer, initial_scale=2.0**4, dynamic_growth_steps=12
        )
    model = make()
    model.compile(_distributed(optimizer), "mse")
    with Counted() as counted:
        _fit(model, make_numbers(STEPS * BATCH_SIZE))
    scale = getattr(model.optimizer, "loss_scale", None)
    return {
        **_result(model.variables, model.optimizer, counted),
        "scale": None if scale is None else float(scale),
        "dynamic": getattr(model.optimizer, "dynamic", None),
    }


def gan(kind):
    """Two models and two optimizers, which take turns."""
    _in_float64()
    generator = models.dense()
    judge = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(5, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    parts = (judge, generator)
    optimizers = [_distributed(KINDS[kind]()) for _ in parts]
    for part, optimizer in zip(parts, optimizers, strict=True):
        if kind == "new":
            optimizer.build(part.trainable_variables)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)

    def update(part, optimizer, tape, value):
        variables = part.trainable_variables
        gradients = tape.gradient(value, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    @tf.function
    def step(noise, real):
        ones = tf.ones((len(real), 1), noise.dtype)
        with tf.GradientTape() as tape:
            value = loss(ones, judge(real))
            value += loss(0.0 * ones, judge(generator(noise)))
        update(judge, optimizers[0], tape, value)
        with tf.GradientTape() as tape:
            value = loss(ones, judge(generator(noise)))
        update(generator, optimizers[1], tape, value)

    with Counted() as counted:
        for x, y in _batches():
            step(tf.constant(x), tf.constant(y + 1.0))
    variables = generator.variables + judge.variables
    return _result(variables, optimizers[0], counted)


def loop(name):
    """A loop with a persistent tape, or with one in another."""
    _in_float64()
    model = models.dense()
    optimizer = KINDS["new"]()
    optimizer.build(model.trainable_variables)
    variables = model.trainable_variables

    def persistent(x, y):
        with tf.GradientTape(persistent=True) as tape:
            outputs = model(x)
            losses = [
                tf.reduce_mean(tf.square(outputs - y)),
                0.1 * tf.reduce_mean(tf.square(outputs)),
            ]
        return tape, losses

    def nested(x, y):
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                outputs = model(x)
            slopes = inner.gradient(outputs, x)
            loss = tf.reduce_mean(tf.square(outputs - y))
            loss += 0.1 * tf.reduce_mean(tf.square(slopes))
        return tape, [loss]

    losses_of = {"persistent tape": persistent, "nested tape": nested}[name]

    @tf.function
    def step(x, y):
        tape, losses = losses_of(x, y)
        if kr.size() > 1:
            tape = kr.DistributedGradientTape(tape)
        gradients = [tape.gradient(loss, variables) for loss in losses]
        total = [sum(each) for each in zip(*gradients, strict=True)]
        optimizer.apply_gradients(zip(total, variables, strict=True))

    with Counted() as counted:
        for x, y in _batches():
            step(tf.constant(x), tf.constant(y))
    return _result(model.variables, optimizer, counted)


def trainable_set_changes(kind):
    """A layer is frozen, and trained again; the optimizer stays."""
    _in_float64()
    model = models.dense()
    optimizer = _distributed(KINDS[kind]())
    data = make_numbers(STEPS * BATCH_SIZE)
    rows = len(data[0]) // 3
    with Counted() as counted:
        for i, trainable in enumerate((True, False, True)):
            model.get_layer("one").trainable = trainable
            model.compile(optimizer, "mse")
            part = slice(i * rows, (i + 1) * rows)
            _fit(model, [array[part] for array in data])
    return _result(model.variables, optimizer, counted)


def copied_model():
    """A deep copy of a model, half-way; Keras copies it as a file."""
    _in_float64()
    model = models.dense()
    model.compile(_distributed(KINDS["new"]()), "mse")
    data = make_numbers(STEPS * BATCH_SIZE)
    rows = len(data[0]) // 2
    with Counted() as counted:
        _fit(model, [array[:rows] for array in data])
        model = copy.deepcopy(model)
        _distributed(model.optimizer)
        _fit(model, [array[rows:] for array in data])
    return _result(model.variables, model.optimizer, counted)


def weighted():
    """Two outputs and losses; weights of samples, then of classes."""
    _in_float64()
    x, y = make_numbers(STEPS * BATCH_SIZE)
    weights = np.random.default_rng(5).uniform(0.2, 2.0, len(x))
    rows = len(x) // 2
    model = models.two_outputs()
    optimizer = _distributed(KINDS["new"]())
    model.compile(optimizer, "mse", loss_weights=[1.0, 0.3])
    with Counted() as counted:
        _fit(model, (x[:rows], y[:rows], weights[:rows]))
    first = _result(model.variables, optimizer, counted)

    classifier = models.dense()
    optimizer = _distributed(KINDS["new"]())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    classifier.compile(optimizer, loss)
    with Counted() as counted:
        _fit(
            classifier,
            (x[rows:], y[rows:].argmax(axis=1)),
            class_weight={0: 1.0, 1: 3.0, 2: 0.5},
        )
    second = _result(classifier.variables, optimizer, counted)
    return {key: first[key] + second[key] for key in first}


def alone():
    """Each rank is a process set, and trains on the whole of each batch."""
    _in_float64()
    optimizer = KINDS["new"]()
    sets = []
    if kr.size() > 1:
        sets += [kr.add_process_set([rank]) for rank in range(kr.size())]
        kr.DistributedOptimizer(optimizer, process_set=sets[kr.rank()])
    model = models.dense()
    model.compile(optimizer, "mse")
    x, y = make_numbers(STEPS * BATCH_SIZE)
    with Counted() as counted:
        model.fit(x, y, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    for each in sets:
        kr.remove_process_set(each)
    return _result(model.variables, optimizer, counted)


def _in_float64():
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")


def _distributed(optimizer):
    """Returns the optimizer as it is in one process, where nothing reduces."""
    return optimizer if kr.size() == 1 else kr.DistributedOptimizer(optimizer)


def _fit(model, data, **settings):
    """Calls `fit` for this rank's part of each batch of (x, y, weights)."""
    (x, y, *weights), batch_sizes = zip(
        *(of_this_rank(array, 1) for array in data), strict=True
    )
    if isinstance(model.output_names, list) and len(model.output_names) > 1:
        y = [y, -y]
        weights = [[weights[0], weights[0]]]
    model.fit(
        x,
        y,
        sample_weight=weights[0] if weights else None,
        batch_size=batch_sizes[0],
        shuffle=False,
        verbose=0,
        **settings,
    )


def _batches():
    (x, size), (y, _) = (
        of_this_rank(array, 1) for array in make_numbers(STEPS * BATCH_SIZE)
    )
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def _result(variables, optimizer, counted):
    return {
        "weights": [variable.numpy().tolist() for variable in variables],
        "iterations": int(optimizer.iterations),
        "collectives": counted.collectives,
    }
