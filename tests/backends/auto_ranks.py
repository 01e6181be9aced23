"""Programs of one process that `--auto` trains on ranks, on any framework.

`rank_auto` of each framework's folder chooses the framework and imports this.
Each function trains as one process does, and returns what has to be the same on
ranks; or the text of what refuses it.
"""

import os
import re
import sqlite3
import traceback
from typing import ClassVar

import keras
import numpy as np

import keras_ring as kr
import keras_ring.auto
from tests.backends import ranks
from tests.backends.ranks import COLUMNS

ops, layers = keras.ops, keras.layers
# The last batch of 24 has 7 rows.
ROWS, BATCH = 103, 24


def before_each_call():
    ranks.begin()


def data(rows=ROWS):
    random = np.random.default_rng(5)
    x = random.normal(size=(rows, COLUMNS))
    return x, np.tanh(x @ random.normal(size=(COLUMNS, 2)))


def dense(*more):
    return keras.Sequential(
        [
            layers.Dense(5, activation="tanh"),
            *more,
            layers.Dense(2),
        ]
    )


def compiled(model, loss="mse", rate=0.05, **settings):
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    model.compile(optimizer, loss=loss, **settings)
    return model


def trained(model, *data, **settings):
    settings = {"batch_size": BATCH, "epochs": 2, "verbose": 0, **settings}
    history = model.fit(*data, **settings)
    return {
        "history": {
            key: [np.array(each).tolist() for each in values]
            for key, values in history.history.items()
        },
        "weights": [np.array(each) for each in model.get_weights()],
    }


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


# --- What is the same on ranks ---


def plain():
    x, y = data()
    model = compiled(dense(), metrics=["mae"])
    found = trained(model, x, y, validation_split=0.2)
    found["evaluated"] = [float(each) for each in model.evaluate(x, y, 20, 0)]
    found["predicted"] = model.predict(x, batch_size=10, verbose=0)
    return found


def normalized():
    model = dense(layers.BatchNormalization(), layers.Activation("relu"))
    return trained(compiled(model), *data())


def few_rows():
    """The last batch has one row."""
    x, y = data(2 * BATCH + 1)
    model = dense(layers.BatchNormalization())
    compiled(model, metrics=["mae", rmse], weighted_metrics=["mse"])
    weight = np.random.default_rng(1).uniform(0, 3, len(x))
    return trained(model, x, y, sample_weight=weight)


def few_rows_of_own():
    """The same with functions and layers of the program's own."""
    x, y = data(BATCH + 1)
    found = [trained(compiled(dense(Scaled()), unlike), x, y)]
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    weight = np.random.default_rng(1).uniform(0, 3, len(x))
    found.append(trained(compiled(dense(), loss), x, y, sample_weight=weight))
    loss = keras.losses.MeanSquaredError(reduction="sum")
    found.append(trained(compiled(dense(), loss, 0.001), x, y))
    return found


def masked():
    random = np.random.default_rng(2)
    tokens = random.integers(0, 7, (ROWS, 8))
    tokens[:, 0] = 3
    model = keras.Sequential(
        [
            layers.Embedding(7, 4, mask_zero=True),
            layers.SimpleRNN(5, return_sequences=True),
            layers.Dense(7, activation="softmax"),
        ]
    )
    compiled(model, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return trained(model, tokens, np.roll(tokens, -1, 1))


def weighted():
    x, y = data()
    weight = np.random.default_rng(1).uniform(0, 3, ROWS)
    model = compiled(dense(), metrics=["mae"], weighted_metrics=["mse"])
    return trained(model, x, y, sample_weight=weight)


def weighted_mean():
    x, y = data()
    weight = np.random.default_rng(1).uniform(0, 3, ROWS)
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    return trained(compiled(dense(), loss), x, y, sample_weight=weight)


def classes():
    x, y = data()
    model = compiled(dense(), "sparse_categorical_crossentropy")
    model.add(layers.Softmax())
    return trained(model, x, y.argmax(-1), class_weight={0: 0.5, 1: 2.0})


def sums():
    loss = keras.losses.MeanSquaredError(reduction="sum")
    return trained(compiled(dense(), loss, 0.001), *data())


def several_outputs():
    inputs = keras.Input((COLUMNS,))
    hidden = layers.Dense(5, activation="tanh")(inputs)
    model = keras.Model(
        inputs,
        {"a": layers.Dense(2)(hidden), "b": layers.Dense(2)(hidden)},
    )
    x, y = data()
    compiled(
        model,
        {"a": "mse", "b": "mae"},
        loss_weights={"a": 1.0, "b": 0.3},
        metrics={"a": ["mae"], "b": ["mse"]},
    )
    return trained(model, x, {"a": y, "b": y * 2})


def unlike(y, p):
    """Compares all rows with each other."""
    y = ops.cast(y, p.dtype)
    norm = ops.sqrt(ops.sum(y * y) * ops.sum(p * p)) + 1e-3
    return 1.0 - ops.sum(y * p) / norm + ops.max(ops.square(p)) / 10.0


def rmse(y, p):
    return ops.sqrt(ops.mean(ops.square(ops.cast(y, p.dtype) - p)))


class Largest(keras.metrics.Metric):
    """A metric that is no sum."""

    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight((), "zeros", name="value")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(ops.maximum(self.value, ops.max(y_pred)))

    def result(self):
        return self.value + 0.0


class Differences(keras.losses.Loss):
    """A loss of the program's own that computes each row."""

    def call(self, y_true, y_pred):
        apart = ops.abs(ops.cast(y_true, y_pred.dtype) - y_pred)
        return ops.mean(apart, axis=-1)


def own_loss():
    return trained(compiled(dense(), unlike), *data())


def own_loss_class():
    return trained(compiled(dense(), Differences()), *data())


def own_metrics():
    model = compiled(dense(), metrics=[rmse, Largest()])
    x, y = data()
    return trained(model, x, y, validation_data=(x[:50], y[:50]))


def regularized():
    model = dense(layers.ActivityRegularization(l2=0.01))
    model.layers[0].kernel_regularizer = keras.regularizers.L2(0.01)
    return trained(compiled(model), *data())


class Scaled(layers.Layer):
    """A layer of the program's own that computes each row by itself."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * self.scale


def own_layer():
    return trained(compiled(dense(Scaled())), *data())


class OwnLoss(keras.Model):
    """A model with a `compute_loss` and a metric of its own."""

    def __init__(self):
        super().__init__()
        self.inner = dense()
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, x):
        return self.inner(x)

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        loss = ops.mean(ops.square(ops.cast(y, y_pred.dtype) - y_pred))
        self.seen.update_state(loss * 3.0)
        return loss


def own_compute_loss():
    return trained(compiled(OwnLoss()), *data())


class Batches(keras.utils.PyDataset):
    """Batches by index."""

    def __init__(self):
        super().__init__()
        self.x, self.y = data()

    def __len__(self):
        return -(-ROWS // BATCH)

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[rows], self.y[rows]


def generated():
    def batches():
        source = Batches()
        while True:
            for index in range(len(source)):
                yield source[index]

    return trained(
        compiled(dense()), batches(), batch_size=None, steps_per_epoch=5
    )


def dataset():
    model = compiled(dense(), metrics=["mae"])
    return trained(model, Batches(), batch_size=None, validation_data=Batches())


def own_loop_over_epochs():
    """`fit` is called again and again, and the learning rate changes."""
    x, y = data()
    model = compiled(dense())
    found = []
    for epoch in range(3):
        model.optimizer.learning_rate = 0.05 / (epoch + 1)
        found.append(trained(model, x, y, epochs=1))
    return found


class Seen(keras.callbacks.Callback):
    """Keeps the losses of batches, and evaluates with other weights."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))

    def on_test_begin(self, logs=None):
        self.kept = self.model.get_weights()
        self.model.set_weights([each / 2 for each in self.kept])

    def on_test_end(self, logs=None):
        self.model.set_weights(self.kept)


def called_back():
    x, y = data()
    average = keras.metrics.R2Score(class_aggregation=None)
    model, seen = compiled(dense(), metrics=["mae", average]), Seen()
    callbacks = [
        seen,
        keras.callbacks.EarlyStopping("val_loss", patience=1),
        keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=1.0),
    ]
    found = trained(
        model, x, y, epochs=4, validation_split=0.3, callbacks=callbacks
    )
    return {**found, "seen": seen.losses}


class Evaluates(keras.callbacks.Callback):
    """Evaluates within epochs, after which metrics go on counting."""

    def __init__(self, x, y):
        super().__init__()
        self.data = x, y

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.model.evaluate(*self.data, batch_size=10, verbose=0)


def evaluated_within():
    x, y = data()
    model = compiled(dense(), metrics=["mae"])
    callbacks = [Evaluates(x[:50], y[:50])]
    return trained(model, x, y, callbacks=callbacks)


def batches_of(x, y, *more):
    for begin in range(0, len(x), BATCH):
        yield [each[begin : begin + BATCH] for each in (x, y, *more)]


def single_batches():
    """Batches of weighted rows, the last of which has one."""
    x, y = data(2 * BATCH + 1)
    weight = np.random.default_rng(1).uniform(0, 3, len(x))
    model = dense(layers.BatchNormalization())
    compiled(model, metrics=["mae", rmse], weighted_metrics=["mse"])
    found = []
    for _ in range(2):
        for batch in batches_of(x, y, weight):
            found.append(model.train_on_batch(*batch))
            named = model.train_on_batch(*batch[:2], return_dict=True)
            found.append([named[key] for key in sorted(named)])
    found.append(model.test_on_batch(x, y))
    found.append(model.predict_on_batch(x))
    classes = compiled(dense(layers.Softmax()), "categorical_crossentropy")
    for a, b in batches_of(x, np.eye(2)[y.argmax(-1)]):
        weights = {0: 0.5, 1: 2.0}
        found.append(classes.train_on_batch(a, b, class_weight=weights))
    weights = [np.array(each) for each in model.get_weights()]
    return {"found": found, "weights": weights}


def adversaries():
    """Two models in turn, one of which is a part of the other."""
    x, _ = data()
    critic = compiled(dense(layers.Dense(1)), rate=0.01)
    critic.build((None, COLUMNS))
    maker = keras.Sequential([keras.Input((4,)), layers.Dense(COLUMNS)])
    both = keras.Sequential([keras.Input((4,)), maker, critic])
    critic.trainable = False
    compiled(both, rate=0.01)
    random = np.random.default_rng(3)
    found = []
    for begin in range(0, ROWS, BATCH):
        real = x[begin : begin + BATCH]
        noise = random.normal(size=(len(real), 4))
        made = maker.predict(noise, verbose=0)
        ones = np.ones((len(real), 2))
        found.append(critic.train_on_batch(real, ones))
        found.append(critic.train_on_batch(made, ones * 0))
        found.append(both.train_on_batch(noise, ones))
    return {"found": found, "weights": both.get_weights()}


def averaged():
    """A callback of Keras evaluates with averages of weights."""
    x, y = data()
    model = dense()
    optimizer = keras.optimizers.SGD(
        0.05, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=None
    )
    model.compile(optimizer, loss="mse")
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    return trained(
        model, x, y, validation_data=(x[:50], y[:50]), callbacks=[swap]
    )


def accumulated():
    model = dense()
    optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
    model.compile(optimizer, loss="mse")
    return trained(model, *data(96))


class Records(keras.callbacks.Callback):
    """Writes a row for each epoch, and changes the training."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.rows = 0

    def on_epoch_end(self, epoch, logs=None):
        with sqlite3.connect(self.path) as table:
            table.execute("CREATE TABLE IF NOT EXISTS epochs (loss REAL)")
            table.execute("INSERT INTO epochs VALUES (?)", [logs["loss"]])
        table.close()
        self.rows += 1
        self.model.optimizer.learning_rate = 0.02
        halved = [each / 2 for each in self.model.get_weights()]
        self.model.set_weights(halved)
        np.random.normal(size=self.rows)
        if epoch == 2:
            self.model.stop_training = True


def recorded(folder):
    """A callback reaches outside: its rows are written once."""
    path = os.path.join(folder, "rows")
    records = Records(path)
    found = trained(
        compiled(dense(), metrics=["mae"]),
        *data(),
        epochs=5,
        callbacks=[records],
    )
    with sqlite3.connect(path) as table:
        rows = table.execute("SELECT loss FROM epochs").fetchall()
    table.close()
    drawn = np.random.normal()
    return {**found, "rows": rows, "kept": [records.rows], "drawn": [drawn]}


def files(folder):
    """Writes as one process does; returns what is there afterwards."""
    x, y = data()
    model = compiled(dense())
    best = os.path.join(folder, "best.keras")
    callbacks = [
        keras.callbacks.ModelCheckpoint(best),
        keras.callbacks.CSVLogger(os.path.join(folder, "log.csv")),
    ]
    found = trained(model, x, y, callbacks=callbacks)
    model.save(os.path.join(folder, "last.keras"))
    loaded = keras.saving.load_model(os.path.join(folder, "last.keras"))
    same = [
        np.array_equal(a, b)
        for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True)
    ]
    with open(os.path.join(folder, "log.csv")) as file:
        lines = len(file.read().splitlines())
    return {**found, "same": [float(all(same))], "lines": [lines]}


# --- What ranks do for themselves ---


class Notes(layers.Dropout):
    """Notes what is dropped in steps, where a step has values."""

    seen: ClassVar[list] = []

    def call(self, inputs, training=False):
        found = super().call(inputs, training=training)
        if training and keras.backend.backend() == "torch":
            self.seen.append(np.array(found.detach()) == 0)
        return found


def dropout():
    """Returns weights, and what a layer has dropped on this rank."""
    x, y = data(96)
    Notes.seen.clear()
    model = compiled(dense(Notes(0.5)))
    weights = trained(model, x, y)["weights"]
    if Notes.seen:
        return weights, Notes.seen[-1]
    noise = model.layers[1](np.ones((1, 64)), training=True)
    return weights, np.asarray(noise)


def shuffled():
    """Draws the order of the data in `fit`, and numbers between."""
    found = trained(compiled(dense(layers.Dropout(0.5))), *data())
    return found["weights"], float(np.random.normal())


def shuffled_after_own_lines():
    """The same after a training with the lines of keras_ring."""
    x, y = kr.data.shard(data(96))
    model = dense()
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    broadcast = kr.callbacks.BroadcastGlobalVariablesCallback()
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[broadcast])
    return shuffled()


# --- What is refused ---


class Compares(layers.Layer):
    """A layer that compares rows."""

    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


class Counts(layers.Layer):
    """A layer that is made for a number of rows."""

    def call(self, x):
        return x + ops.zeros((BATCH, 1), x.dtype)


class OwnStep(keras.Model):
    """A model with a step of its own, which is that of Keras."""

    def __init__(self):
        super().__init__()
        self.inner = dense()

    def call(self, x):
        return self.inner(x)

    def train_step(self, *args):
        return super().train_step(*args)


def by_compute_loss(model, x, y, p):
    return model.compute_loss(x, y, p)


def by_mean(model, x, y, p):
    return ops.mean(ops.square(ops.cast(y, p.dtype) - p))


def by_sum(model, x, y, p):
    return ops.sum(ops.square(ops.cast(y, p.dtype) - p)) / 100.0


class Stepped(keras.Model):
    """A model with a step as the guides of Keras write it."""

    def __init__(self, loss_of, name="loss"):
        super().__init__()
        self.inner = dense(layers.BatchNormalization())
        self.loss_of = loss_of
        self.loss_name = name
        self.tracker = keras.metrics.Mean(name="loss")
        self.error = keras.metrics.MeanAbsoluteError(name="mae")

    @property
    def metrics(self):
        return [self.tracker, self.error]

    def call(self, x, training=False):
        return self.inner(x, training=training)

    def train_step(self, *args):
        if keras.backend.backend() == "jax":
            return self.on_jax(*args)
        return self.on_torch(*args)

    def on_torch(self, data):
        import torch

        x, y = data
        self.zero_grad()
        p = self(x, training=True)
        loss = self.loss_of(self, x, y, p)
        loss.backward()
        variables = list(self.trainable_variables)
        gradients = [each.value.grad for each in variables]
        with torch.no_grad():
            self.optimizer.apply(gradients, variables)
        self.tracker.update_state(loss)
        self.error.update_state(y, p)
        return {
            self.loss_name: self.tracker.result(),
            "mae": self.error.result(),
        }

    def on_jax(self, state, data):
        import jax

        trained, kept, of_optimizer, of_metrics = state
        x, y = data

        def compute(trained, kept):
            p, kept = self.stateless_call(trained, kept, x, training=True)
            return self.loss_of(self, x, y, p), (p, kept)

        gradient = jax.value_and_grad(compute, has_aux=True)
        (loss, (p, kept)), gradients = gradient(trained, kept)
        trained, of_optimizer = self.optimizer.stateless_apply(
            of_optimizer, gradients, trained
        )
        logs, counted = {}, []
        for metric in self.metrics:
            begin = len(counted)
            mine = of_metrics[begin : begin + len(metric.variables)]
            is_loss = metric is self.tracker
            given = (loss,) if is_loss else (y, p)
            mine = metric.stateless_update_state(mine, *given)
            name = self.loss_name if is_loss else metric.name
            logs[name] = metric.stateless_result(mine)
            counted += mine
        return logs, (trained, kept, of_optimizer, counted)


def stepped(loss_of, rows=ROWS, name="loss"):
    x, y = data(rows)
    model = Stepped(loss_of, name)
    model(x[:1])
    return trained(compiled(model), x, y)


def own_step_with_compute_loss():
    return [stepped(by_compute_loss), stepped(by_compute_loss, BATCH + 1)]


def own_step_with_own_loss():
    """Its last batch, with an odd number of rows or one, cannot be divided."""
    return [stepped(by_mean), stepped(by_mean, BATCH + 1)]


class Counting(Stepped):
    """A model that multiplies its loss in every third step, as it counts."""

    steps = 0

    def on_torch(self, data):
        self.steps += 1
        return super().on_torch(data)


def every_third(model, x, y, p):
    return by_mean(model, x, y, p) * (2.0 if model.steps % 3 == 2 else 1.0)


def by_draws(model, x, y, p):
    """Draws as many numbers as it has rows, which change nothing."""
    np.random.normal(size=len(x))
    return by_mean(model, x, y, p)


def own_step_that_draws():
    """What is drawn between steps is the same afterwards on all ranks."""
    x, y = data(96)
    model = Stepped(by_draws)
    model(x[:1])
    compiled(model, run_eagerly=True)
    trained(model, x, y, epochs=1)
    return float(np.random.normal())


def own_step_that_counts():
    x, y = data(96)
    model = Counting(every_third)
    model.steps = 0
    model(x[:1])
    return trained(compiled(model), x, y)


def own_step_of_sums():
    return refused(lambda: stepped(by_sum))


def own_step_of_values():
    return refused(lambda: stepped(by_mean, name="error_of_rows"))


class OwnMetrics(OwnStep):
    """A model that computes the results of its metrics itself."""

    def __init__(self, of_rows=False):
        super().__init__()
        self.seen = keras.metrics.Mean(name="seen")
        self.of_rows = of_rows

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        found = super().compute_metrics(x, y, y_pred, sample_weight)
        largest = ops.max(ops.cast(y, y_pred.dtype) - y_pred)
        if self.of_rows:
            self.seen.update_state(largest)
        else:
            apart = ops.abs(ops.cast(y, y_pred.dtype) - y_pred)
            self.seen.update_state(apart)
        return {**found, "seen": self.seen.result()}


def own_metrics_of_step():
    return trained(compiled(OwnMetrics(), metrics=["mae"]), *data())


def own_metrics_of_rows():
    model = OwnMetrics(of_rows=True)
    return refused(lambda: trained(compiled(model), *data()))


class KeepsLargest(OwnLoss):
    """A model that updates a metric that is no sum."""

    def __init__(self):
        super().__init__()
        self.largest = Largest()

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        self.largest.update_state(y, y_pred)
        return super().compute_loss(x, y, y_pred, sample_weight, training)


class Keeps(layers.Layer):
    """A layer that keeps a mean of what it has seen."""

    def build(self, shape):
        self.mean = self.add_weight(
            shape=(shape[-1],), initializer="zeros", trainable=False
        )

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x, axis=0))
        return x + 1.0


def state_kept():
    return refused(lambda: trained(compiled(dense(Keeps())), *data(96)))


def rows_compared():
    return refused(lambda: trained(compiled(dense(Compares())), *data(96)))


def rows_counted():
    return refused(lambda: trained(compiled(dense(Counts())), *data(96)))


def own_step():
    return trained(compiled(OwnStep(), metrics=["mae"]), *data())


def no_sum():
    return refused(lambda: trained(compiled(KeepsLargest()), *data()))


def own_loop():
    model, (x, _) = dense(), data()
    model(x)
    optimizer = keras.optimizers.SGD(0.1)
    gradients = [
        ops.ones(each.shape, each.dtype) for each in model.trainable_variables
    ]
    return refused(
        lambda: optimizer.apply(gradients, model.trainable_variables)
    )


def unequal_data():
    random = np.random.default_rng(kr.rank())

    def batches():
        while True:
            yield random.normal(size=(12, COLUMNS)), np.ones((12, 2))

    model = compiled(dense())
    return refused(
        lambda: trained(
            model, batches(), batch_size=None, steps_per_epoch=3, epochs=1
        )
    )


def unequal_rows():
    def batches():
        while True:
            yield np.ones((12, COLUMNS)), np.ones((12, 2)), np.ones(1)

    model = compiled(dense())
    return refused(
        lambda: trained(
            model, batches(), batch_size=None, steps_per_epoch=3, epochs=1
        )
    )
