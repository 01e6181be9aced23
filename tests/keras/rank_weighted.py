"""Losses that are divided by what each rank happens to hold.

Each call returns how far the weights of the ranks are from those of one process
that trains on the whole batches, with and without `weighted`.
"""

import logging

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.optimizer import weighted_losses

STEPS, ROWS, LENGTH = 3, 4, 6


def make_data():
    """Whole batches, and this rank's part of each: rank 1 has few tokens."""
    rng = np.random.default_rng(5)
    shape = (STEPS, kr.size(), ROWS)
    words = rng.integers(1, 10, (*shape, LENGTH))
    words[:, 1:, :, 2:] = 0
    # A row without a token has no mean.
    words[:, 1:, 1:, 1:] = 0
    labels = rng.integers(0, 3, (*shape, LENGTH))
    target = rng.normal(size=(*shape, 2))
    weights = rng.uniform(0.1, 1.0, shape)
    weights[:, 1:] *= 9.0
    arrays = (words, labels, target, weights)
    whole = [array.reshape(-1, *array.shape[3:]) for array in arrays]
    rank = kr.rank()
    own = [array[:, rank].reshape(-1, *array.shape[3:]) for array in arrays]
    return whole, own


def make_model():
    words = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(10, 5, mask_zero=True)(words)
    x = keras.layers.Dense(4, kernel_regularizer="l2")(x)
    tokens = keras.layers.Dense(3, name="tokens")(x)
    pooled = keras.layers.GlobalAveragePooling1D()(x)
    vector = keras.layers.Dense(2, name="vector")(pooled)
    return keras.Model(words, [tokens, vector])


def losses():
    return [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
    ]


def compile_and_fit(model, optimizer, data, rows, **settings):
    words, labels, target, weights = data
    ones = np.ones(labels.shape)
    model.compile(optimizer, losses(), **settings)
    model.fit(
        words,
        [labels, target],
        sample_weight=[ones, weights],
        batch_size=rows,
        shuffle=False,
        verbose=0,
    )


def train_by_tape(model, optimizer, data, rows, tape_of):
    token_loss, vector_loss = losses()

    @tf.function
    def step(words, labels, target, weights):
        with tape_of() as tape:
            tokens, vector = model(words, training=True)
            loss = token_loss(labels, tokens) + sum(model.losses)
            loss += vector_loss(target, vector, sample_weight=weights)
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply(gradients, model.trainable_weights)

    for start in range(0, len(data[0]), rows):
        step(*(tf.constant(each[start : start + rows]) for each in data))


def train_with_weight(model, optimizer, data, rows, distributed, eager):
    """A loss of the user's own."""

    def step(words, labels):
        with tf.GradientTape() as tape:
            tokens, _ = model(words, training=True)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, tokens
            )
            mask = tf.cast(words > 0, each.dtype)
            count = tf.reduce_sum(mask)
            loss = tf.reduce_sum(each * mask) / count + sum(model.losses)
        weights = model.trainable_weights[:-2]
        if distributed:
            tape = kr.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, weights, weight=count)
        else:
            gradients = tape.gradient(loss, weights)
        optimizer.apply(gradients, weights)

    step = step if eager else tf.function(step)
    optimizer.build(model.trainable_weights[:-2])
    for start in range(0, len(data[0]), rows):
        step(*(tf.constant(each[start : start + rows]) for each in data[:2]))


def weighted(case):
    keras.config.set_dtype_policy("float64")
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(3)
    whole, own = make_data()
    initial = make_model()

    def trained(train, *arguments):
        model = keras.models.clone_model(initial)
        model.set_weights(initial.get_weights())
        train(model, keras.optimizers.SGD(0.5, momentum=0.9), *arguments)
        return model.get_weights()

    def trained_by_fit(weighted, **settings):
        def train(model, optimizer):
            optimizer = kr.DistributedOptimizer(optimizer, weighted=weighted)
            compile_and_fit(model, optimizer, own, ROWS, **settings)

        return trained(train)

    try:
        rows = ROWS * kr.size()
        with kr.allow_local_updates():
            if case.startswith("weight"):
                one = trained(train_with_weight, whole, rows, False, True)
            else:
                one = trained(compile_and_fit, whole, rows)
        if case == "plain":
            ranks = trained_by_fit(False)
        elif case == "tape":
            ranks = trained(
                train_by_tape,
                own,
                ROWS,
                lambda: kr.DistributedGradientTape(
                    tf.GradientTape(), weighted=True
                ),
            )
        elif case.startswith("weight"):
            eager = case == "weight eager"
            ranks = trained(train_with_weight, own, ROWS, True, eager)
        else:
            ranks = trained_by_fit(
                True,
                **{
                    "graph": {"jit_compile": False},
                    "jit": {"jit_compile": True},
                    "eager": {"run_eagerly": True},
                }[case],
            )
    finally:
        keras.config.set_dtype_policy("float32")
        keras.config.set_floatx("float32")
    return max(
        float(np.max(np.abs(a - b)) / np.max(np.abs(a)))
        for a, b in zip(one, ranks, strict=True)
    )


def warned():
    """What is said of each kind of loss, by whether it was weighted."""
    found = {}
    keras.utils.set_random_seed(3)
    (words, labels, target, weights), _ = make_data()
    inputs = keras.Input((LENGTH,), dtype="int32")
    embedded = {
        name: keras.layers.Embedding(10, 5, mask_zero=name == "mask")(inputs)
        for name in ("mask", "rows", "weights")
    }

    def of(name):
        """Returns a model, and how to train it."""
        if name == "mask":
            outputs = keras.layers.Dense(3)(embedded[name])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            return keras.Model(inputs, outputs), loss, labels, None
        pooled = keras.layers.GlobalAveragePooling1D()(embedded[name])
        model = keras.Model(inputs, keras.layers.Dense(2)(pooled))
        reduction = "sum_over_batch_size"
        if name == "weights":
            reduction = "mean_with_sample_weight"
        loss = keras.losses.MeanSquaredError(reduction=reduction)
        return model, loss, target, weights

    def fit(name, **settings):
        model, loss, y, sample_weight = of(name)
        model.compile(kr.DistributedOptimizer("sgd", **settings), loss)
        model.fit(words, y, sample_weight=sample_weight, verbose=0)

    def by_tape(name, weight=None, **settings):
        model, loss, y, sample_weight = of(name)
        tape = tf.GradientTape()
        with kr.DistributedGradientTape(tape, **settings) as tape:
            value = loss(y, model(words), sample_weight=sample_weight)
        tape.gradient(value, model.trainable_weights, weight=weight)

    def evaluate():
        model, loss, y, _ = of("mask")
        model.compile(kr.DistributedOptimizer("sgd"), loss)
        model.evaluate(words, y, verbose=0)

    cases = {
        "mask": lambda: fit("mask"),
        "weights": lambda: fit("weights"),
        "rows": lambda: fit("rows"),
        "mask, weighted": lambda: fit("mask", weighted=True),
        "mask, sum": lambda: fit("mask", op=kr.Sum),
        "mask, evaluate": evaluate,
        "tape, mask": lambda: by_tape("mask"),
        "tape, weights": lambda: by_tape("weights"),
        "tape, rows": lambda: by_tape("rows"),
        "tape, mask, weight": lambda: by_tape("mask", tf.constant(3.0)),
        "tape, mask, weighted": lambda: by_tape("mask", weighted=True),
    }
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logging.getLogger("absl").addHandler(handler)
    try:
        for name, train in cases.items():
            weighted_losses._warn_once.cache_clear()
            records.clear()
            # Again, for it is said once.
            train()
            train()
            found[name] = [each for each in records if "weighted=" in each]
    finally:
        logging.getLogger("absl").removeHandler(handler)
    return found


def weighted_mistakes():
    """What cannot be weighted is an error before anything is sent."""
    found = {}

    def look(name, function):
        try:
            function()
        except ValueError as error:
            found[name] = str(error)

    variable = tf.Variable([1.0])
    look(
        "op",
        lambda: kr.DistributedOptimizer("sgd", kr.Sum, weighted=True),
    )
    optimizer = kr.DistributedOptimizer("sgd", weighted=True)
    look("loop", lambda: optimizer.apply([tf.ones([1])], [variable]))
    with tf.GradientTape(persistent=True) as tape:
        loss = variable * 2.0
    after = kr.DistributedGradientTape(tape, weighted=True)
    look("tape", lambda: after.gradient(loss, variable))
    total = kr.DistributedGradientTape(tape, kr.Sum)
    look("sum", lambda: total.gradient(loss, variable, weight=1.0))
    look(
        "v1",
        lambda: kr.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.1), weighted=True
        ),
    )
    # Evaluation, and a look at a gradient on one rank alone, wait for nobody.
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(
        optimizer=kr.DistributedOptimizer("sgd", weighted=True), loss="mse"
    )
    if kr.rank() == 0:
        model.evaluate(np.ones((2, 1)), np.ones((2, 1)), verbose=0)
        with tf.GradientTape() as tape:
            loss = keras.losses.MeanSquaredError()(
                tf.ones((2, 1)), model(tf.ones((2, 1)))
            )
        assert tape.gradient(loss, model.trainable_weights[0]) is not None
    return found
