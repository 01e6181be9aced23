"""What ranks do in `test_auto_on_ranks.py`. Each returns plain values."""

import builtins
import functools
import io
import logging
import os
import random
import re
import sys
import time
import traceback
import zipfile
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.core import notices
from keras_ring.keras.backends.which import is_keras2
from keras_ring.keras.lanes import compat, keras
from keras_ring.unchanged import activation, once
from keras_ring.unchanged.settings import AutoSettings

ROWS, COLUMNS = 103, 5  # no multiple of a batch, nor of 2 or 3 ranks
RANKS = 3  # of the job whose results are those of one process
SGD = keras.optimizers.SGD
layers = keras.layers
# What all calls of a job have been started with: each may ask for more.
SETTINGS = SimpleNamespace(**AutoSettings()._asdict())


def before_each_call():
    """Starts each program from nothing, as one process does."""
    keras.backend.set_floatx("float64")
    vars(SETTINGS).update(AutoSettings()._asdict())
    activation.activate(SETTINGS)
    # Keras 3 would collect what calls leave, which takes as long as some.
    clear = keras.backend.clear_session
    clear(**({} if is_keras2() else {"free_memory": False}))
    keras.utils.set_random_seed(7)
    notices._said.clear()
    once._is_asked = False


def data(rows=ROWS):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, COLUMNS))
    return x, 2 * x[:, :1] - x[:, 1:2] ** 2


def dense(**arguments):
    return keras.Sequential(
        [
            keras.Input((COLUMNS,)),
            layers.Dense(8, activation="relu", **arguments),
            layers.Dense(1),
        ]
    )


def trained(model, *args, epochs=2, **kwargs):
    """Trains a model; returns its weights and its history."""
    history = model.fit(*args, epochs=epochs, verbose=0, **kwargs).history
    return {
        "weights": [np.array(w, np.float64) for w in model.get_weights()],
        "history": {k: np.array(v, float) for k, v in history.items()},
    }


def compiled(model, loss="mse", optimizer="adam", **arguments):
    model.compile(optimizer, loss, **arguments)
    return model


def arrays():
    x, y = data()
    model = compiled(dense(), metrics=["mae"])
    return trained(model, x, y, batch_size=10, validation_split=0.2)


def rows_of_one_rank():
    """The last batch has one row, so other ranks have none."""
    x, y = data(31)
    model = compiled(
        keras.Sequential(
            [
                keras.Input((COLUMNS,)),
                layers.Dense(4, use_bias=False),
                layers.BatchNormalization(),
                layers.Dense(1, kernel_regularizer="l2"),
            ]
        )
    )
    return trained(model, x, y, batch_size=10)


def masks_and_weights():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, size=(50, 7))
    x[:, 3:] *= rng.random((50, 4)) > 0.5
    model = keras.Sequential(
        [
            keras.Input((7,)),
            layers.Embedding(9, 4, mask_zero=True),
            layers.LSTM(4, return_sequences=True),
            layers.Dense(1),
        ]
    )
    return trained(
        compiled(model),
        x,
        rng.normal(size=(50, 7, 1)),
        batch_size=12,
        sample_weight=rng.random((50, 7)),
    )


class Filters(layers.Layer):
    """Convolves and pools by itself."""

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(2, 2, input_shape[-1], 3), initializer="glorot_uniform"
        )

    def call(self, inputs):
        found = tf.nn.conv2d(inputs, self.kernel, 1, "SAME")
        return tf.nn.max_pool2d(found, 2, 1, "SAME")


def images(dtype, rows, how="in a graph"):
    """Of the last batch some ranks have no rows, of which kernels know none."""
    # For operations that make tensors by themselves.
    keras.backend.set_floatx(dtype)
    rng = np.random.default_rng(0)
    hidden = inputs = keras.Input((6, None, 4), dtype=dtype)
    for layer in (
        layers.Conv2D(3, 2, activation="relu", dtype=dtype),
        layers.DepthwiseConv2D(2, dtype=dtype),
        layers.MaxPooling2D(2, padding="same", dtype=dtype),
        Filters(dtype=dtype),
        layers.Conv2DTranspose(4, 2, strides=2, dtype=dtype),
        layers.AveragePooling2D(2, dtype=dtype),
        layers.SeparableConv2D(3, 1, dtype=dtype),
        layers.GlobalAveragePooling2D(dtype=dtype),
        layers.Dense(1, dtype=dtype),
    ):
        hidden = layer(hidden)
    model = keras.Model(inputs, hidden)
    compiled(model, "mse", SGD(0.01), run_eagerly=how == "eagerly")
    x = rng.normal(size=(rows, 6, 6, 4)).astype(dtype)
    return trained(model, x, rng.normal(size=(rows, 1)), batch_size=10)


def loss_of(reduction):
    x, y = data()
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    model = compiled(
        dense(kernel_regularizer="l2", activity_regularizer="l1"),
        loss,
        SGD(1e-3),
    )
    weights = np.arange(ROWS) / 50.0
    return trained(model, x, y, batch_size=10, sample_weight=weights)


def loss_function(rows=ROWS):
    x, y = data(rows)
    model = compiled(dense(), lambda a, b: tf.reduce_mean(tf.abs(a - b)))
    return trained(model, x, y, batch_size=10)


def class_weights():
    x, y = data()
    model = compiled(dense(), "binary_crossentropy", SGD(0.01))
    return trained(
        model,
        x,
        (y > 0).astype("int64"),
        batch_size=10,
        class_weight={0: 0.3, 1: 2.0},
    )


class Own(keras.Model):
    """A step of a program's own."""

    def __init__(self, how="mean"):
        super().__init__()
        self.how = how
        self.hidden = layers.Dense(6, activation="tanh")
        self.norm = layers.BatchNormalization()
        self.out = layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, x, training=False):
        return self.out(self.norm(self.hidden(x), training=training))

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            if self.how == "mean":
                loss = tf.reduce_mean(tf.square(p - y))
            elif self.how == "rows":
                loss = tf.reduce_mean(tf.square(p - y), axis=1)
            elif self.how == "sum":
                loss = tf.reduce_sum(tf.square(p - y))
            elif self.how == "pairs":
                loss = tf.reduce_mean(tf.square(p - tf.reduce_max(p)))
            else:
                noise = np.random.default_rng().normal()
                loss = tf.reduce_mean(tf.square(p - y)) * noise
        weights = self.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result(), "last": tf.reduce_mean(loss)}


class Nested(Own):
    """Returns results within results, as Keras 3 may be given them."""

    def train_step(self, batch):
        logs = super().train_step(batch)
        last = logs["last"]
        return {**logs, "parts": {"error": last, "more": {"twice": 2 * last}}}


def own_step(kind="Own"):
    # Of the last batch ranks have 1, 1 and 2 rows.
    x, y = data(104)
    model = {"Own": Own, "Nested": Nested}[kind]()
    model.compile("adam")
    return trained(model, x, y, batch_size=10)


def optimizer_of_the_program():
    """A step that updates by an optimizer which the model does not have."""
    optimizer = SGD(0.05)

    class Updated(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = dense()

        def call(self, x):
            return self.inner(x)

        def train_step(self, batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
            weights = self.trainable_variables
            gradients = tape.gradient(loss, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return {"loss": loss}

    model = Updated()
    model.compile()
    return trained(model, *data(34), batch_size=10)


def connectionist(dtype):
    """The gradient of this loss is a function of TensorFlow 1, in float32."""
    assert dtype == "float32"
    random = np.random.default_rng(6)
    model = keras.Sequential([keras.Input((10, 4)), layers.Dense(6)])
    model.compile(SGD(0.01), keras.losses.CTC())
    x = random.normal(size=(32, 10, 4))
    return trained(model, x, random.integers(1, 5, (32, 3)), batch_size=8)


class Shows(keras.callbacks.Callback):
    """Writes what a model makes of its data, whose order it changes so."""

    def __init__(self, dataset):
        super().__init__()
        self.dataset = dataset

    def on_epoch_end(self, epoch, logs=None):
        for rows in self.dataset.take(1):
            shown = self.model.predict(rows, verbose=0)
            np.save(io.BytesIO(), shown)


def shown_data():
    x, y = (
        tf.data.Dataset.from_tensor_slices(each).shuffle(40, seed=i).batch(8)
        for i, each in enumerate(data(40))
    )
    model = compiled(dense())
    pairs = tf.data.Dataset.zip((x, y))
    return trained(model, pairs, epochs=3, callbacks=[Shows(x)])


def unequal_rows():
    """The first dimensions differ, which shapes tell, or only the data."""

    class Of(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = dense()

        def call(self, inputs):
            return self.inner(inputs[0]) + tf.reduce_mean(inputs[1])

    def fit(drop):
        x, y = data(24)
        few, all_rows = (
            tf.data.Dataset.from_tensor_slices(each)
            for each in ((x[:8], y[:8]), x)
        )
        pairs = tf.data.Dataset.zip(
            (few.batch(4, drop), all_rows.batch(12, drop))
        )
        model = compiled(Of())
        model.fit(
            pairs.map(lambda pair, more: ((pair[0], more), pair[1])), verbose=0
        )

    def fit_layers():
        """Layers of Keras alone, which no step compares."""
        x, y = data(24)
        rows = keras.Input((COLUMNS,))
        context = keras.Input((COLUMNS,))
        model = keras.Model(
            [rows, context], layers.Dense(1)(layers.Add()([rows, context]))
        )
        batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
        compiled(model).fit(
            batches.map(lambda x, y: ((x, x[:1]), y)), verbose=0
        )

    fits = [functools.partial(fit, drop) for drop in (True, False)]
    return [refused(each) for each in (*fits, fit_layers)]


def own_step_of_rows(shape):
    """A step whose tape adds up a loss for each row."""
    rows = {"even": 30, "uneven": 103}[shape]
    data_of_all = tf.data.Dataset.from_tensor_slices(data(rows))
    # Of the first, each part has three rows, which its shape tells.
    batches = {
        "even": data_of_all.batch(9, drop_remainder=True),
        "uneven": data_of_all.batch(10, drop_remainder=False),
    }[shape]
    model = Own("rows")
    model.compile("sgd")
    return trained(model, batches)


def few_rows(kind, rows):
    """A step of its own, of whose last batch some ranks have no rows."""
    x, y = data(rows)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    model = Own()
    # XLA leaves assertions in a step away.
    by_xla = kind == "unknown" and kr.xla_built()
    model.compile("adam", jit_compile=by_xla)
    of = {
        "arrays": {"x": x, "y": y, "batch_size": 10},
        "batched": {"x": batches.prefetch(1)},
        "unknown": {"x": batches.map(lambda x, y: (x, y))},
    }[kind]
    text = refused(lambda: model.fit(**of, verbose=0))
    return text, int(model.optimizer.iterations)


def centred(hidden):
    return hidden - keras.ops.mean(hidden, axis=0, keepdims=True)


def coupled_rows(by):
    """What compares each row with the others, in layers or between them."""
    x, y = data()
    rows = keras.Input((COLUMNS,))
    given = {}
    if by == "activation":
        given = {"activation": centred}
    elif by == "activity_regularizer":
        given = {"activity_regularizer": Spread()}
    hidden = layers.Dense(4, **given)(rows)
    if by == "operation":
        hidden = centred(hidden)
    model = compiled(keras.Model(rows, layers.Dense(1)(hidden)))
    return refused(lambda: model.fit(x, y, batch_size=10, verbose=0))


class Spread(keras.regularizers.Regularizer):
    """Goes by the mean over a batch, as penalties for sparse codes do."""

    def __call__(self, hidden):
        mean = keras.ops.mean(hidden, axis=0)
        return keras.ops.sum(keras.ops.square(mean - 0.3))


def functions_of_layers():
    """Those of the program's own that compute each row by itself."""
    x, y = data()

    def penalty(hidden):
        return 1e-2 * keras.ops.sum(keras.ops.square(hidden))

    model = dense(activity_regularizer=penalty)
    model.layers[0].activation = lambda hidden: hidden * keras.ops.tanh(hidden)
    return trained(compiled(model), x, y, batch_size=10)


def own_step_that(how):
    x, y = data()
    model = Own(how)
    model.compile("adam", run_eagerly=how == "chance")
    if how == "chance":
        return printed(lambda: model.fit(x, y, batch_size=10, verbose=0))
    return refused(lambda: model.fit(x, y, batch_size=10, verbose=0))


class Smooth(Own):
    """A step with a penalty on the gradient by what it is given."""

    def call(self, x):
        return self.out(self.hidden(x))

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                p = self(x)
            slopes = inner.gradient(p, x)
            loss = tf.reduce_mean(tf.square(p - y))
            loss += tf.reduce_mean(tf.square(tf.norm(slopes, axis=1) - 1.0))
        weights = self.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def penalty_on_gradients():
    x, y = data()
    model = Smooth()
    model.compile("adam")
    return trained(model, x, y, batch_size=10)


class Gan(keras.Model):
    """Two optimizers, and a batch that is put together in the step."""

    def __init__(self):
        super().__init__()
        self.maker = dense()
        self.judge = keras.Sequential(
            [keras.Input((1,)), layers.Dense(4, "relu"), layers.Dense(1)]
        )
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.of_judge = keras.metrics.Mean(name="judge")
        self.of_maker = keras.metrics.Mean(name="maker")

    def compile(self):
        super().compile()
        self.optimizers = [keras.optimizers.Adam(), keras.optimizers.Adam()]

    @property
    def metrics(self):
        return [self.of_judge, self.of_maker]

    def train_step(self, batch):
        x, y = batch
        ones = tf.ones_like(y)
        both = tf.concat([y, self.maker(x)], 0)
        labels = tf.concat([ones, tf.zeros_like(y)], 0)
        for part, tracker, loss_of, optimizer in (
            (
                self.judge,
                self.of_judge,
                lambda: self.loss_fn(labels, self.judge(both)),
                self.optimizers[0],
            ),
            (
                self.maker,
                self.of_maker,
                lambda: self.loss_fn(ones, self.judge(self.maker(x))),
                self.optimizers[1],
            ),
        ):
            with tf.GradientTape() as tape:
                loss = loss_of()
            weights = part.trainable_weights
            optimizer.apply_gradients(
                zip(tape.gradient(loss, weights), weights, strict=True)
            )
            tracker.update_state(loss)
        return {
            "judge": self.of_judge.result(),
            "maker": self.of_maker.result(),
        }


def two_optimizers():
    x, y = data()
    model = Gan()
    model.compile()
    return trained(model, x, y, batch_size=10)


def endless():
    x, y = data()
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    batches = rows.shuffle(50, seed=1).repeat().batch(10)
    model = compiled(dense(), steps_per_execution=3)
    return trained(
        model,
        batches,
        steps_per_epoch=7,
        validation_data=rows.repeat().batch(10),
        validation_steps=5,
    )


class Batches(compat.Dataset):
    def __init__(self):
        super().__init__()
        self.x, self.y = data()

    def __len__(self):
        return 11

    def __getitem__(self, index):
        rows = slice(10 * index, 10 * index + 10)
        return self.x[rows], self.y[rows]


def py_dataset():
    return trained(compiled(dense()), Batches(), validation_data=Batches())


def accumulated(around="nothing"):
    """Gradients of several batches, of which a file has the last ones."""
    x, y = data()
    adam = keras.optimizers.Adam(
        gradient_accumulation_steps=3, clipnorm=0.1, use_ema=True
    )
    if around == "a scale":
        adam = keras.optimizers.LossScaleOptimizer(adam, initial_scale=8)
    found = trained(compiled(dense(), "mse", adam), x, y, batch_size=10)
    # Of 22 batches the last one waits for others.
    inner = getattr(adam, "inner_optimizer", adam)
    found["waiting"] = [each.numpy() for each in inner._accumulated_gradients]
    return found


def compiled_by_xla():
    x, y = data()
    model = compiled(dense(), jit_compile=True)
    return trained(model, x, y, batch_size=10)


def even_then_uneven():
    x, y = data(120)
    model = compiled(dense())
    trained(model, x, y, batch_size=12, epochs=1)
    return trained(model, x[:50], y[:50], batch_size=12)


class Seen(keras.callbacks.Callback):
    """Keeps what a callback is given after each batch."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def on_train_batch_end(self, batch, logs=None):
        self.rows.append([float(logs["loss"]), float(logs["mae"])])
        # A metric of several values.
        self.rows[-1] += np.ravel(logs.get("r2_score", ())).tolist()


def results_of_batches():
    x, y = data(31)
    y = np.stack([np.ravel(y), np.ravel(y) / 3], axis=1)
    each_output = keras.metrics.R2Score(class_aggregation=None)
    model = keras.Sequential([dense(), layers.Dense(2)])
    compiled(model, metrics=["mae", each_output])
    seen, shown = Seen(), []
    each = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: shown.append(logs["loss"])
    )
    found = trained(model, x, y, batch_size=10, callbacks=[seen, each])
    # Also where one of them alone is there, and the first is not a list.
    other = Seen()
    trained(model, x, y, batch_size=10, callbacks=other)
    return {**found, "seen": seen.rows, "shown": shown, "other": other.rows}


class Between(keras.callbacks.Callback):
    """Evaluates between steps, from where Keras goes on counting."""

    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            x, y = data(13)
            found = self.model.evaluate(
                x, y, batch_size=self.batch_size, verbose=0
            )
            self.found.append(found)


def evaluated_between_steps():
    x, y = data(31)
    model = compiled(dense(), metrics=["mae"])
    found = {}
    # In batches for all ranks, and in too few.
    for batch_size in (3, 8):
        between, seen = Between(batch_size), Seen()
        found[str(batch_size)] = trained(
            model, x, y, batch_size=10, callbacks=[between, seen]
        )
        found[f"{batch_size} between"] = between.found
        found[f"{batch_size} seen"] = seen.rows
    return found


def read_again():
    """The same dataset, in the order that each reading of it has."""
    x, y = data()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed=1)
    batches = batches.batch(8)
    model = compiled(dense(), metrics=["mae"])
    found = {}
    for index in range(2):
        found[f"trained {index}"] = trained(model, batches)
        found[f"evaluated {index}"] = model.evaluate(batches, verbose=0)
    return found


def own_batches(source):
    """A batch for each rank is one as many times as large for one process."""
    ranks = kr.size()
    vars(SETTINGS).update(per_rank=ranks > 1, learning_rate="linear")
    rate, batch = (0.01, 10) if ranks > 1 else (0.01 * RANKS, 10 * RANKS)
    x, y = data()
    model = keras.Sequential(
        [
            keras.Input((COLUMNS,)),
            layers.Dense(8, "relu"),
            layers.BatchNormalization(),
            layers.Dense(1, kernel_regularizer="l2"),
        ]
    )
    compiled(model, "mse", SGD(rate), metrics=["mae"])
    if source == "arrays":
        rows = np.arange(ROWS) / 50.0
        options = {"batch_size": batch, "shuffle": False}
        arguments = (x, y)
        options |= {"sample_weight": rows, "validation_split": 0.05}
    else:
        options = {"steps_per_epoch": 6 if ranks > 1 else 6 // RANKS}
        # An epoch goes on where the last one was.
        rows = tf.data.Dataset.from_tensor_slices((x, y)).take(90)
        arguments = (rows.batch(batch).repeat(),)
    found = trained(model, *arguments, **options)
    found["steps"] = int(model.optimizer.iterations)
    found["rate"] = float(model.optimizer.learning_rate)
    # Once: the next one begins with the rate of the last.
    trained(model, *arguments, epochs=1, **options)
    found["rate again"] = float(model.optimizer.learning_rate)
    return found


def sequences():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 3, 2)), rng.normal(size=(20, 1))


def stateful():
    """A layer that goes on where the batch before has left it."""
    inputs = keras.Input(batch_shape=(4, 3, 2))
    hidden = layers.GRU(3, stateful=True)(inputs)
    return keras.Model(inputs, layers.Dense(1)(hidden))


def results_of_states():
    x, y = sequences()
    model = compiled(stateful())
    return {
        "evaluated": model.evaluate(x, y, batch_size=4, verbose=0),
        "predicted": model.predict(x, batch_size=4, verbose=0),
    }


def results():
    """Evaluates and predicts; returns what a program is given."""
    x, y = data()
    model = compiled(dense(), metrics=["mae"])
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    return {
        "arrays": model.evaluate(x, y, batch_size=9, verbose=0),
        "batches": model.evaluate(batches, verbose=0, return_dict=True),
        "few": model.evaluate(x, y, batch_size=103, verbose=0),
        "predicted": model.predict(x, batch_size=9, verbose=0),
        "of batches": model.predict(batches.map(lambda x, y: x), verbose=0),
        "of few": model.predict(x[:2], verbose=0),
    }


class OfText(keras.Model):
    """A model of the program's own, with a layer that computes no numbers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        words = ["a", "b", "c", "d"]
        self.text = layers.TextVectorization(
            vocabulary=words, output_sequence_length=4
        )
        self.embed, self.out = layers.Embedding(9, 3), layers.Dense(1)

    def call(self, x):
        return self.out(keras.ops.mean(self.embed(self.text(x)), axis=1))


def text():
    x = tf.constant(["a b", "c d d", "a a", "b d", "d"] * 6)
    model = compiled(OfText())
    return trained(model, x, data(30)[1], batch_size=8)


def padded_text(mask):
    """As long as the longest row of a batch, which is that of some ranks."""
    x = tf.constant(["a b c d a b"] * 4 + ["c", "a", "b d", "d"] * 3)
    model = compiled(
        keras.Sequential(
            [
                layers.TextVectorization(vocabulary=["a", "b", "c", "d"]),
                layers.Embedding(9, 3, mask_zero=mask),
                layers.GRU(4),
                layers.Dense(1),
            ]
        )
    )
    y = data(16)[1]
    if mask:
        return trained(model, x, y, batch_size=8, shuffle=False)
    return refused(
        lambda: model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    )


def metrics_of_two_models():
    """Keras resets metrics of a model only once they are built in it."""
    x, y = data()
    metrics = [keras.metrics.MeanAbsoluteError()]
    found = {}
    for index in range(3):
        model = compiled(dense(), metrics=metrics)
        found[f"first {index}"] = model.evaluate(x, y, batch_size=9, verbose=0)
        found[f"again {index}"] = model.evaluate(x, y, batch_size=9, verbose=0)
    return found


def cached(folder):
    """Trains on a dataset that is cached in a file; returns what is there."""
    x, y = data()
    model = compiled(dense())
    batches = tf.data.Dataset.from_tensor_slices((x, y))
    batches = batches.cache(os.path.join(folder, "cached")).batch(10)
    losses = model.fit(batches, epochs=2, verbose=0).history["loss"]
    kr.barrier(name="cached")
    names = sorted(each for each in os.listdir(folder) if "cached" in each)
    return losses, [each for each in names if each.endswith(".index")]


def files(folder):
    """Saves and loads; returns who has written what."""
    saved = []
    library = keras.src.saving.saving_lib
    # That of Keras 3, or of Keras 2.
    name = "_save_model_to_fileobj"
    name = name if hasattr(library, name) else "save_model"
    save = getattr(library, name)

    def noted(*args, **kwargs):
        # Later than other ranks come to the end of `fit`.
        time.sleep(0.3)
        saved.append(kr.rank())
        return save(*args, **kwargs)

    setattr(library, name, noted)
    x, y = data()
    model = compiled(dense())
    path = str(Path(folder, "model.keras"))
    best = str(Path(folder, "best.{epoch}.keras"))
    trained(
        model,
        x,
        y,
        callbacks=[keras.callbacks.ModelCheckpoint(best)],
    )
    last = zipfile.is_zipfile(best.format(epoch=2))
    model.save(path)
    loaded = keras.models.load_model(path)
    own = str(Path(folder, f"{kr.rank()}.weights.h5"))
    model.save_weights(own)
    setattr(library, name, save)
    same = all(
        np.array_equal(a, b)
        for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True)
    )
    return saved, same, Path(own).exists(), last


def written(folder):
    """Writes a file as a program does; returns what is said of it."""
    return printed(lambda: Path(folder, "notes.txt").write_text("done"))


def image(folder):
    """Saves an image as a program does; returns who has written it."""
    from PIL import Image

    saved = []
    save = Image.Image.save

    def noted(*args, **kwargs):
        saved.append(kr.rank())
        return save(*args, **kwargs)

    Image.Image.save = noted
    path = str(Path(folder, "image.png"))
    pixels = np.arange(48.0).reshape(4, 4, 3)
    try:
        keras.utils.save_img(path, pixels, scale=False)
    finally:
        Image.Image.save = save
    read = keras.utils.img_to_array(keras.utils.load_img(path))
    return saved, bool(np.array_equal(read, pixels))


def appended(folder):
    """Appends to a file, and has `logging` do so; returns what is said."""
    path, of_log = (str(Path(folder, name)) for name in ("a.csv", "a.log"))

    def append():
        with open(path, "a") as file:
            file.write("done")

    def log():
        logging.FileHandler(of_log).close()

    return refused(append), os.path.exists(path), printed(log)


def own_seed():
    """Draws as a program that sets no seed; returns what is drawn."""
    keras.utils.set_random_seed(100 + kr.rank())
    activation.share_seed()
    return [
        np.random.random(),
        random.random(),
        float(tf.random.uniform([])),
        float(dense().get_weights()[0][0, 0]),
    ]


def warmed_up():
    """Trains with a batch for each rank; returns rates, and what is said."""
    vars(SETTINGS).update(per_rank=True, learning_rate="sqrt", warmup_epochs=2)
    x, y = data()
    model = compiled(dense(), "mse", SGD(0.01))
    rates = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: rates.append(
            float(model.optimizer.learning_rate)
        )
    )
    text = printed(
        lambda: model.fit(
            x, y, batch_size=10, epochs=3, verbose=0, callbacks=[look]
        )
    )
    return rates, text


def own_batches_that_are_refused():
    """What a batch for each rank cannot be made of."""
    vars(SETTINGS).update(per_rank=True, learning_rate="linear")
    x, y = data()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    unknown = batches.filter(lambda x, y: True)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)

    def train(model, data):
        return refused(lambda: model.fit(data, verbose=0))

    return (
        train(compiled(dense(), "mse", SGD(0.01)), unknown),
        train(compiled(dense(), "mse", SGD(schedule)), batches),
    )


def unlike_own_batches():
    """Each rank has data of its own, of which it takes a batch."""
    vars(SETTINGS).update(per_rank=True)
    return unlike_data()


def unlike_data():
    """Each rank has data of its own."""
    x = np.random.default_rng(kr.rank()).normal(size=(60, COLUMNS))
    return refused(
        lambda: compiled(dense()).fit(x, x[:, :1], batch_size=10, verbose=0)
    )


def changed_data():
    """Each rank changes the same rows in a way of its own."""
    x, y = data(60)
    noise = np.random.default_rng(kr.rank()).normal(size=x.shape)
    return printed(
        lambda: compiled(dense()).fit(x + noise, y, batch_size=10, verbose=0)
    )


def refusals():
    """What is refused, each with its line."""
    x, _ = data()
    model = compiled(dense())
    plain = SGD(0.1)

    def own_loop():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        weights = model.trainable_variables
        gradients = tape.gradient(loss, weights)
        plain.apply_gradients(zip(gradients, weights, strict=True))

    lasting = compiled(stateful())

    return {
        "state": refused(lambda: lasting.fit(*sequences(), batch_size=4)),
        "strategy": refused(tf.distribute.MirroredStrategy),
        "input": refused(builtins.input),
        "loop": refused(own_loop),
    }


def by_hand():
    """A program that divides its data itself is left alone."""
    x, y = data(60)
    x, y = kr.data.shard((x, y))
    model = dense()
    model.compile(kr.DistributedOptimizer(SGD(0.01)), "mse")
    callbacks = [kr.callbacks.BroadcastGlobalVariablesCallback()]
    return printed(
        lambda: model.fit(x, y, batch_size=5, verbose=0, callbacks=callbacks)
    )


def explained():
    """What --auto=explain says of a `fit`."""
    from keras_ring.unchanged import training

    x, y = data()
    model = compiled(dense())
    wanted = {
        "x": x,
        "y": y,
        "sample_weight": None,
        "batch_size": 10,
        "steps_per_epoch": None,
        "shuffle": True,
        "class_weight": None,
        "validation_split": 0.2,
        "validation_data": None,
        "callbacks": [keras.callbacks.CSVLogger("never.csv")],
    }

    def explain():
        try:
            training._explain(model, wanted)
        except SystemExit as end:
            assert end.code == 0

    text = printed(explain)
    assert not os.path.exists("never.csv")
    return text


def random_numbers():
    """Dropout of each rank's own, of equal weights."""
    x, y = data(60)
    model = keras.Sequential(
        [keras.Input((COLUMNS,)), layers.Dropout(0.5, seed=1)]
    )
    compiled(model)
    dropout = model.layers[0]
    other = keras.Sequential(
        [keras.Input((COLUMNS,)), dropout, layers.Dense(1)]
    )
    compiled(other).fit(x, y, batch_size=30, epochs=1, verbose=0)
    drawn = np.asarray(dropout(np.ones((1, 64)), training=True))
    return drawn, other.get_weights()


def drawn_by_keras():
    """Draws by `keras.random` in steps, and between them.

    In steps each rank draws its own; afterwards all draw what one process does.
    """
    x, y = data(60)
    seen = []

    class Noise(layers.Layer):
        def call(self, inputs, training=False):
            # Comparisons run eagerly, without chance.
            if training and not tf.executing_eagerly():
                noise = keras.random.normal((1,), dtype="float64")
                tf.numpy_function(lambda each: seen.append(each), [noise], [])
            return inputs

    model = keras.Sequential(
        [keras.Input((COLUMNS,)), Noise(), layers.Dense(1)]
    )
    found = trained(compiled(model), x, y, batch_size=30)
    found["drawn"] = np.asarray(keras.random.normal((4,), dtype="float64"))
    return found, np.array(seen).ravel()


def chance_of_rank_0():
    """Evaluates what each rank does for itself, with numbers of its own."""

    def chance(y, p):
        return tf.abs(y - p) + np.random.default_rng().normal()

    x, y = data(20)
    model = compiled(dense(), metrics=[chance], run_eagerly=True)
    return model.evaluate(x, y, verbose=0)


def refused(function):
    """Returns the error of keras_ring that a function raises."""
    try:
        function()
    except kr.errors.KerasRingError as error:
        # A user reads all that is chained, and finds ours there once.
        shown = "".join(traceback.format_exception(error))
        assert len(re.findall(r"^keras_ring\.errors\.", shown, re.M)) == 1, (
            shown
        )
        return f"{type(error).__name__}: {error}"
    return "nothing"


def printed(function):
    """Returns what a function has printed on the standard error."""
    with redirect_stderr(io.StringIO()) as text:
        function()
    sys.stderr.write(text.getvalue())
    return text.getvalue()
