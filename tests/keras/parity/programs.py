"""Cases that are programs of their own."""

import copy
import pickle
import tempfile
from pathlib import Path

import keras

import keras_ring as kr
from tests.keras.parity import models
from tests.keras.parity.fitting import distributed, fit, momentum, shard
from tests.keras.parity.models import BATCH_SIZE, STEPS, tf


def parts(data, count):
    """Returns the first, second and so on of `count` parts of a rank's data."""
    length = len(data[0]) // count
    return [
        tuple(array[i * length : (i + 1) * length] for array in data)
        for i in range(count)
    ]


def compiled(optimizer=None):
    model = models.classifier()
    model.compile(distributed(optimizer or momentum()), models.sparse_loss())
    return model


def alone():
    """Each rank is a process set, and trains on the whole of each batch."""
    sets = []
    settings = {}
    if kr.size() > 1:
        sets += [kr.add_process_set([rank]) for rank in range(kr.size())]
        settings["process_set"] = sets[kr.rank()]
    model = models.classifier()
    model.compile(distributed(momentum(), **settings), models.sparse_loss())
    x, y = models.make_data()
    model.fit(x, y, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    for each in sets:
        kr.remove_process_set(each)
    return model.variables


def trainable_set_changes():
    """A layer is frozen, and trained again; the optimizer stays."""
    model = compiled(keras.optimizers.Adam(0.01))
    optimizer = model.optimizer
    data = parts(shard(models.make_data()), 3)
    for part, trainable in zip(data, (True, False, True), strict=True):
        model.get_layer("one").trainable = trainable
        model.compile(optimizer, models.sparse_loss())
        fit(model, part)
    return model.variables


def _by_copied_optimizer(copied):
    optimizer = copied(distributed(keras.optimizers.Adam(0.01)))
    model = models.classifier()
    model.compile(optimizer, models.sparse_loss())
    fit(model, shard(models.make_data()))
    return model.variables


def pickled_optimizer():
    return _by_copied_optimizer(lambda o: pickle.loads(pickle.dumps(o)))


def deep_copied_optimizer():
    return _by_copied_optimizer(copy.deepcopy)


def optimizer_of_a_config():
    return _by_copied_optimizer(lambda o: type(o).from_config(o.get_config()))


def distributed_between():
    """An optimizer that has trained alone keeps its slots and its step."""
    first, second = parts(models.make_data(), 2)
    model = models.classifier()
    optimizer = keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.02, 10, 0.7)
    )
    model.compile(optimizer, models.sparse_loss())
    with kr.allow_local_updates():
        model.fit(*first, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    model.compile(distributed(optimizer), models.sparse_loss())
    fit(model, shard(second))
    return model.variables


def copied_model():
    """A deep copy of a model, half-way; Keras copies it as a file."""
    model = compiled(keras.optimizers.Adam(0.01))
    first, second = parts(shard(models.make_data()), 2)
    fit(model, first)
    model = copy.deepcopy(model)
    distributed(model.optimizer)
    fit(model, second)
    return model.variables


def loaded_model():
    """A file, half-way, with the state of the optimizer."""
    model = compiled(keras.optimizers.Adam(0.01))
    first, second = parts(shard(models.make_data()), 2)
    fit(model, first)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.keras"
        model.save(path)
        model = kr.load_model(path)
    fit(model, second)
    return model.variables


def _batches():
    size = BATCH_SIZE // kr.size()
    x, y = shard(models.make_data())
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def _loop(make_tape, gradients_of):
    """Trains by a loop; returns the variables.

    Args:
        make_tape: Makes the tape.
        gradients_of: A function of the tape, the model, the rows of one batch
            and their labels, that returns gradients.
    """
    model = models.classifier()
    optimizer = momentum()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with make_tape() as tape:
            losses = gradients_of(model, x, y)
        if kr.size() > 1:
            tape = kr.DistributedGradientTape(tape)
        gradients = [
            tape.gradient(loss, model.trainable_variables) for loss in losses
        ]
        total = [sum(each) for each in zip(*gradients, strict=True)]
        optimizer.apply(total, model.trainable_variables)

    for x, y in _batches():
        step(x, y)
    return model.variables


def tape():
    return _loop(
        tf.GradientTape,
        lambda model, x, y: [models.sparse_loss()(y, model(x))],
    )


def persistent_tape():
    """Two losses, and a gradient of each."""

    def losses(model, x, y):
        outputs = model(x)
        return [
            models.sparse_loss()(y, outputs),
            0.1 * tf.reduce_mean(tf.square(outputs)),
        ]

    return _loop(lambda: tf.GradientTape(persistent=True), losses)


def nested_tape():
    """A penalty on a gradient, which is a gradient of a gradient."""

    def losses(model, x, y):
        with tf.GradientTape() as inner:
            inner.watch(x)
            outputs = model(x)
        slopes = inner.gradient(outputs, x)
        penalty = tf.reduce_mean(tf.square(slopes))
        return [models.sparse_loss()(y, outputs) + 0.1 * penalty]

    return _loop(tf.GradientTape, losses)


def gan():
    """Two models and two optimizers, which take turns."""
    generator = models.classifier()
    judge = keras.Sequential(
        [
            keras.Input((models.CLASSES,)),
            keras.layers.Dense(6, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    optimizers = {
        judge: distributed(keras.optimizers.Adam(0.01)),
        generator: distributed(keras.optimizers.Adam(0.01)),
    }
    for model, optimizer in optimizers.items():
        optimizer.build(model.trainable_variables)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)

    def update(model, tape, value):
        gradients = tape.gradient(value, model.trainable_variables)
        optimizers[model].apply(gradients, model.trainable_variables)

    @tf.function
    def step(noise, real):
        ones = tf.ones((len(real), 1), noise.dtype)
        with tf.GradientTape() as tape:
            value = loss(ones, judge(real))
            value += loss(0.0 * ones, judge(generator(noise)))
        update(judge, tape, value)
        with tf.GradientTape() as tape:
            value = loss(ones, judge(generator(noise)))
        update(generator, tape, value)

    for x, _ in _batches():
        step(tf.constant(x), tf.constant(x[:, : models.CLASSES] + 1.0))
    return generator.variables + judge.variables


def gan_in_a_train_step():
    """As `fit` trains it: with two optimizers, and one that is not used."""
    model = models.Gan(lambda: distributed(keras.optimizers.Adam(0.01)))
    model.compile()
    fit(model, shard(models.make_data()), callbacks=models.share(model))
    return model.trainable_variables


def _with_seeds_of_ranks(model):
    """Trains a model whose variables are not all the same on ranks."""
    model.compile(distributed(momentum()), models.sparse_loss())
    fit(model, shard(models.make_data()), callbacks=models.share(model))
    return model.trainable_variables


def dropout():
    return _with_seeds_of_ranks(models.with_dropout())


def vae():
    return _with_seeds_of_ranks(models.Vae())


def warm_up():
    """The callback on ranks; in one process, what it says it does."""
    peak, epochs = 0.2, 2
    model = compiled(keras.optimizers.SGD(peak, momentum=0.9))
    steps = STEPS // 3

    class LearningRate(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            # On JAX, variables have values where `self.model` was asked for.
            optimizer = self.model.optimizer
            done = min(1.0, int(optimizer.iterations) / (epochs * steps - 1))
            # Two ranks begin with half of it.
            optimizer.learning_rate = peak * (0.5 + 0.5 * done)

    if kr.size() == 1:
        callback = LearningRate()
    else:
        callback = kr.callbacks.LearningRateWarmupCallback(
            peak, epochs, momentum_correction=False
        )
    data = parts(shard(models.make_data()), 3)[0]
    fit(model, data, epochs=3, callbacks=[callback])
    return model.variables
