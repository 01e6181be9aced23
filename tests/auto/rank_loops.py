"""What ranks do in `test_loops_on_ranks.py`. Each returns plain values."""

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.lanes import keras
from tests.auto.rank_auto import (  # noqa: F401
    RANKS,
    SETTINGS,
    SGD,
    before_each_call,
    compiled,
    data,
    dense,
    layers,
    printed,
    refused,
)


def weights_of(model):
    return [np.array(w, np.float64) for w in model.get_weights()]


def update(model, optimizer, tape, loss):
    weights = model.trainable_variables
    gradients = tape.gradient(loss, weights)
    optimizer.apply_gradients(zip(gradients, weights, strict=True))


def step_of(model, optimizer, loss=None, **options):
    """Returns a step of training as programs write it."""

    def mean_of_squares(y, outputs):
        return tf.reduce_mean((outputs - tf.cast(y, outputs.dtype)) ** 2)

    loss = loss or mean_of_squares

    @tf.function(**options)
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        update(model, optimizer, tape, value)
        return value

    return step


def batches(x, y, size=10):
    for begin in range(0, len(x), size):
        yield x[begin : begin + size], y[begin : begin + size]


def looped(step, model, epochs=2, rows=103):
    x, y = data(rows)
    losses = [
        float(np.mean(step(*batch)))
        for _ in range(epochs)
        for batch in batches(x, y)
    ]
    return {"losses": np.array(losses), "weights": weights_of(model)}


def compiled_step(how):
    model = dense(kernel_regularizer="l2")
    loss = {
        "mean": None,
        "keras": keras.losses.MeanSquaredError(),
        "keras_sum": keras.losses.MeanSquaredError(reduction="sum"),
        "rows": lambda y, outputs: tf.reduce_mean((outputs - y) ** 2, axis=1),
    }[how]
    return looped(step_of(model, SGD(1e-3), loss), model)


def accumulated():
    model = dense()
    adam = keras.optimizers.Adam(gradient_accumulation_steps=3)
    found = looped(step_of(model, adam), model)
    waiting = [each.numpy() for each in adam._accumulated_gradients]
    return {**found, "waiting": waiting}


def compiled_by_xla():
    model = dense()
    return looped(step_of(model, SGD(0.01), jit_compile=True), model, rows=40)


def with_moments():
    """A normalization, whose moments are those of the whole batch."""
    model = keras.Sequential(
        [keras.Input((5,)), layers.BatchNormalization(), layers.Dense(1)]
    )
    return looped(step_of(model, keras.optimizers.Adam(0.01)), model)


def fewer_rows_than_ranks():
    """The first batch has one row, and so has each fourth."""
    x, y = data(25)
    model = dense()
    seen = keras.metrics.Mean()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        seen.update_state(loss)
        update(model, optimizer, tape, loss)
        return loss, y

    optimizer = SGD(0.01)
    results = []
    for _ in range(2):
        for begin, end in ((0, 1), (1, 9), (9, 17), (17, 25)):
            loss, rows = step(x[begin:end], y[begin:end])
            results += [float(loss), float(seen.result()), *rows.numpy()[:, 0]]
    return {"results": np.array(results), "weights": weights_of(model)}


def scaled_loss():
    """An optimizer in another one, which scales the loss."""
    if hasattr(keras.optimizers, "LossScaleOptimizer"):
        scaler = keras.optimizers.LossScaleOptimizer(SGD(0.01))
        scale = scaler.scale_loss
    else:
        scaler = keras.mixed_precision.LossScaleOptimizer(SGD(0.01))
        scale = scaler.get_scaled_loss
    model = dense()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
            scaled = scale(loss)
        weights = model.trainable_variables
        gradients = tape.gradient(scaled, weights)
        if hasattr(scaler, "get_unscaled_gradients"):
            gradients = scaler.get_unscaled_gradients(gradients)
        scaler.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    return looped(step, model)


def ways_of_small_values():
    """Returns in which ways values of parts may make a small one of all."""
    from keras_ring.unchanged import row_semantics

    found = []
    for kind in ("float32", "float64"):
        noise = np.finfo(kind).eps
        for scale in (noise, 1e6 * noise):
            whole = np.asarray(0.7 * scale, kind)
            part = np.asarray((-1) ** kr.rank() * scale, kind)
            ways = row_semantics.possible([whole], [part], 9, 3, "test")
            found.append(sorted(way.name for way in ways[0]))
    return found


def trains_for_some_arguments():
    """A function that tests first, and trains later."""
    model = dense()
    optimizer = SGD(0.01)
    # Variables cannot be made when a function is traced again.
    optimizer.build(model.trainable_variables)

    @tf.function
    def run(x, y, training):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        if training:
            update(model, optimizer, tape, loss)
        return loss

    x, y = data()
    losses = [run(x, y, False)]
    for batch in batches(x, y):
        losses.append(run(*batch, training=True))
    losses.append(run(x, y, False))
    return {
        "losses": np.array([float(each) for each in losses]),
        "weights": weights_of(model),
    }


def fit_and_loop():
    """One optimizer in `fit`, a loop, and single batches."""
    x, y = data()
    model = compiled(dense(), metrics=["mae"])
    step = step_of(model, model.optimizer)
    results = []
    for _ in range(2):
        history = model.fit(x, y, batch_size=10, epochs=1, verbose=0).history
        results += [history["loss"][-1], history["mae"][-1]]
        results += [float(step(*batch)) for batch in batches(x, y, 50)]
        results += [*model.train_on_batch(x[:7], y[:7])]
        results += [*model.test_on_batch(x[:7], y[:7])]
        results += [*model.train_on_batch(x[:2], y[:2])]
        results += [*model.evaluate(x, y, verbose=0)]
        results += [*model.train_on_batch(x[:8], y[:8])]
    return {"results": np.array(results, float), "weights": weights_of(model)}


def single_batches_of_own_step():
    """A model that is not built before, with a `train_step`."""
    x, y = data()

    class Own(keras.Model):
        def __init__(self):
            super().__init__(name="own")
            self.dense = layers.Dense(1)
            self.tracker = keras.metrics.Mean(name="loss")

        def call(self, inputs):
            return self.dense(inputs)

        def train_step(self, batch):
            x, y = batch[:2]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x) - tf.cast(y, x.dtype)) ** 2)
            weights = self.trainable_variables
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result(), "twice": 2 * loss}

        @property
        def metrics(self):
            return [self.tracker]

    model = compiled(Own(), None, SGD(0.01))
    found = [
        model.train_on_batch(*batch, return_dict=True)
        for batch in (*batches(x[:100], y[:100]), (x[100:102], y[100:102]))
    ]
    return {
        "losses": np.array([[each["loss"], each["twice"]] for each in found]),
        "weights": weights_of(model),
    }


class ReturnsLoss(keras.Model):
    """A step whose value has the name of a metric that nothing updates."""

    def __init__(self):
        super().__init__(name="returns")
        self.dense = layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, batch):
        x, y = batch[:2]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - tf.cast(y, x.dtype)) ** 2)
        update(self, self.optimizer, tape, loss)
        return {"loss": loss}


def values_by_the_name_of_a_metric():
    x, y = data()
    model = compiled(ReturnsLoss(), None, SGD(0.01))
    found = [
        model.train_on_batch(*batch, return_dict=True)["loss"]
        for batch in batches(x[:100], y[:100])
    ]
    seen = []
    sees = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: seen.append(float(logs["loss"]))
    )
    history = model.fit(x, y, batch_size=10, verbose=0, callbacks=[sees])
    losses = [*found, *seen, *history.history["loss"]]
    return {"losses": np.array(losses, float), "weights": weights_of(model)}


def half_precision(how):
    """Steps that compute in 16 bits are compared as such."""
    x, y = data(60)
    keras.backend.set_floatx("float32")
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:

        class Own(layers.Layer):
            def call(self, inputs):
                return tf.nn.relu(inputs)

        model = keras.Sequential(
            [
                keras.Input((5,)),
                layers.Dense(64),
                Own(),
                layers.Dense(1, dtype="float32"),
            ]
        )
        if how == "fit":
            compiled(model)
            return refused(lambda: model.fit(x, y, batch_size=60, verbose=0))
        step = step_of(model, SGD(0.01))
        return refused(lambda: step(x.astype("float32"), y.astype("float32")))
    finally:
        keras.mixed_precision.set_global_policy("float32")


def single_batches_that(how):
    """What a batch of its own is checked for."""
    x, y = data()
    if how == "sum":

        class Own(keras.Model):
            def train_step(self, batch):
                x, y = batch[:2]
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(
                        (self(x) - tf.cast(y, self.compute_dtype)) ** 2
                    )
                update(self, self.optimizer, tape, loss)
                return {"loss": loss}

        inputs = keras.Input((5,))
        model = Own(inputs, layers.Dense(1)(inputs))
        compiled(model, None, SGD(1e-4))
        return refused(lambda: model.train_on_batch(x, y))
    model = compiled(dense(), optimizer=SGD(0.0))
    mine = [np.full_like(w, 1.0 + kr.rank()) for w in model.get_weights()]
    model.set_weights(mine)
    model.train_on_batch(x, y)
    return weights_of(model)


def counted(how):
    """What a step counts, and returns, beside the loss."""
    model, optimizer = dense(), SGD(0.01)
    seen = tf.Variable(0, dtype=tf.int64)
    largest = tf.Variable(0.0, dtype="float64")
    mean = keras.metrics.MeanSquaredError()
    x, y = data()

    @tf.function
    def step(x, y, rate):
        with tf.GradientTape() as tape:
            outputs = model(x)
            loss = tf.reduce_mean((outputs - y) ** 2)
        update(model, optimizer, tape, loss)
        seen.assign_add(tf.shape(x, tf.int64)[0])
        # None at first.
        limit = tf.where(rate == 0, tf.constant(99, y.dtype), 0)
        mean.update_state(y, outputs)
        if how == "largest":
            largest.assign(tf.maximum(largest, tf.reduce_max(outputs)))
        if how == "result":
            return mean.result()
        if how == "ragged":
            return tf.RaggedTensor.from_row_lengths(x, [tf.shape(x)[0]])
        return (
            rate,
            [
                tf.reduce_sum(x, axis=0),
                outputs,
                tf.reduce_sum(tf.cast(y > limit, "int32")),
            ]
            if how == "all"
            else None,
            optimizer.iterations,
        )

    def train():
        rates = []
        for rate, batch in enumerate(batches(x, y, 30)):
            results = step(*batch, tf.constant(rate))
            rates += [int(results[0]), int(results[2])]
            sums, outputs, none = results[1]
            assert outputs.shape == batch[1].shape
            rates += [*sums.numpy(), *outputs.numpy()[:, 0], float(none)]
        return {
            "results": np.array(rates, float),
            "seen": np.array([int(seen), float(mean.result())]),
            "weights": weights_of(model),
        }

    if how == "all":
        return train()
    return refused(lambda: step(x, y, tf.constant(1)))


def later_batches():
    """A mean over known targets, all of which are known at first."""

    def known(y, outputs):
        is_known = tf.cast(y > -99.0, y.dtype)
        total = tf.reduce_sum(is_known * (outputs - y) ** 2)
        return total / tf.maximum(tf.reduce_sum(is_known), 1.0)

    x, y = data()
    missing = np.where(np.arange(10)[:, None] % 3, y[:10], -100.0)
    step = step_of(dense(), SGD(0.01), known)

    def loop():
        for number in range(8):
            step(x[:10], missing if number > 2 else y[:10])

    return refused(loop)


def refusals():
    x, y = data()
    model = dense()

    def step_by(loss):
        return step_of(model, SGD(0.01), loss)

    def of_sum(y, outputs):
        return tf.reduce_sum((outputs - y) ** 2)

    def of_pairs(y, outputs):
        return tf.reduce_mean((outputs - tf.transpose(outputs)) ** 2)

    @tf.function
    def without_batch():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        update(model, plain, tape, loss)

    plain = SGD(0.01)
    step = step_by(None)
    other_rows = step_by(None)
    other_rows(x[:9], y[:9])

    def fixed_shape(y, outputs):
        return tf.reduce_mean((tf.reshape(outputs, [103, 1]) - y) ** 2)

    def eagerly():
        tf.config.run_functions_eagerly(True)
        try:
            step(x, y)
        finally:
            tf.config.run_functions_eagerly(False)

    found = {
        "sum": refused(lambda: step_by(of_sum)(x, y)),
        "pairs": refused(lambda: step_by(of_pairs)(x, y)),
        "no_batch": refused(without_batch),
        "other_rows": refused(lambda: other_rows(x[:9], y[:7])),
        "shape": refused(lambda: step_by(fixed_shape)(x, y)),
        "eagerly": refused(eagerly),
    }
    SETTINGS.per_rank = True
    fresh = compiled(dense())
    found["per_rank"] = refused(lambda: step_by(None)(x, y))
    found["per_rank_batch"] = refused(lambda: fresh.train_on_batch(x, y))
    return found


def unlike_data():
    """Other batches on each rank: at once, and later."""
    x, y = data()
    mine = (x + kr.rank(), y * (1 + kr.rank()))
    model = compiled(dense())
    step, late = step_of(model, SGD(0.01)), step_of(model, SGD(0.01))
    late(x, y)
    late(x, y)

    def on_third():
        late(*mine)
        late(x, y)

    return {
        "step": refused(lambda: step(*mine)),
        "late": refused(on_third),
        "batch": refused(lambda: model.train_on_batch(*mine)),
    }


def changed_data():
    """Ranks that have changed the same rows in ways of their own."""
    x, y = data(60)
    model = dense()
    step = step_of(model, SGD(0.01))
    noise = np.random.default_rng(kr.rank()).normal(0, 0.01, x.shape)
    text = printed(lambda: step(x + noise, y))
    return text, weights_of(model)


def unlike_state():
    """A variable that goes by the rank is found when ranks compare."""
    x, y = data()
    model = dense()
    own = tf.Variable(0.0, dtype="float64")
    optimizer = SGD(0.01)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2) + 0.0 * own
        update(model, optimizer, tape, loss)
        return loss

    step(x, y)
    own.assign(float(kr.rank()))
    return refused(lambda: step(x, y))


def shared_state():
    """Initial weights that no seed gives are those of rank 0."""
    x, y = data()
    model = keras.Sequential([keras.Input((5,)), layers.Dense(1)])
    kernel = np.full((5, 1), 1.0 + kr.rank())
    model.set_weights([kernel, np.zeros(1)])
    step = step_of(model, SGD(0.0))
    step(x, y)
    return float(weights_of(model)[0].mean())


def of_chance():
    """Steps whose numbers nobody can repeat are said not to be checked."""
    x, y = data()
    model = dense()
    drawn = iter(np.random.default_rng(1).normal(size=1000))

    def loss(y, outputs):
        noise = tf.numpy_function(lambda: next(drawn), [], tf.float64)
        return tf.reduce_mean((outputs - y + noise) ** 2)

    text = printed(lambda: step_of(model, SGD(0.01), loss)(x, y))
    return text, weights_of(model)


def random_numbers():
    """Noise and dropout are other ones on each rank, and the same again."""
    x, _ = data(60)
    model = keras.Sequential(
        [keras.Input((5,)), layers.Dropout(0.5, seed=1), layers.Dense(1)]
    )
    optimizer = SGD(0.01)

    @tf.function
    def draw(x):
        noise = tf.random.normal([tf.shape(x)[0], 1], dtype=x.dtype)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - noise) ** 2)
        update(model, optimizer, tape, loss)
        return noise

    noise = draw(x).numpy()[:, 0]
    return noise, weights_of(model)


def explained():
    x, y = data()
    model = compiled(dense())
    SETTINGS.explain = True

    def explain(call):
        try:
            call()
        except SystemExit as end:
            return end.code
        return "went on"

    codes = []

    def both():
        step = step_of(model, SGD(0.01))
        codes.append(explain(lambda: step(x, y)))
        codes.append(explain(lambda: model.train_on_batch(x, y)))

    before = weights_of(model)
    text = printed(both)
    same = all(map(np.array_equal, before, weights_of(model)))
    return text, codes, same
