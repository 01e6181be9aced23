"""What ranks do in `test_keras2.py`. Each returns plain values."""

import contextlib
import copy
import io
import pickle

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.optimizer.mixin import distributed_settings
from tests.keras2 import exactness, programs, rank_apart
from tests.keras2.counting import Counted
from tests.keras2.models import (
    BATCH_SIZE,
    STEPS,
    Subclassed,
    make_data,
    make_model,
    of_this_rank,
)

keras = tf.keras
legacy = keras.optimizers.legacy

OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "AdamW": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "Ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "schedule": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.8)
    ),
    "clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
    "use_ema": lambda: keras.optimizers.SGD(
        0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=5
    ),
    "legacy SGD": lambda: legacy.SGD(0.05),
    "legacy momentum": lambda: legacy.SGD(0.05, momentum=0.9),
    "legacy Adam": lambda: legacy.Adam(0.01, decay=0.1),
    "legacy clip": lambda: legacy.SGD(0.1, global_clipnorm=0.1),
    "LossScaleOptimizer": lambda: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=16.0
    ),
    "legacy LossScaleOptimizer": (
        lambda: keras.mixed_precision.LossScaleOptimizer(
            legacy.SGD(0.05, momentum=0.9), initial_scale=16.0
        )
    ),
}
SETTINGS = {
    "plain": {},
    "predivide": {"gradient_predivide_factor": 4.0},
    "groups": {"groups": 2},
    "dense": {"sparse_as_dense": True},
    "passes": {
        "backward_passes_per_step": 3,
        "average_aggregated_gradients": True,
    },
    "summed passes": {"backward_passes_per_step": 2},
}


# Beside those here.
MORE_CALLS = (programs, exactness, rank_apart)


def before_each_call():
    kr.init()
    keras.backend.clear_session()
    keras.backend.set_floatx("float32")
    keras.mixed_precision.set_global_policy("float32")
    keras.utils.set_random_seed(11)


def train(optimizer_name, settings_name="plain"):
    """Trains, and returns the weights.

    In float64, so that the order of sums makes no difference to speak of.
    """
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    settings = SETTINGS[settings_name]
    passes = settings.get("backward_passes_per_step", 1)
    optimizer = OPTIMIZERS[optimizer_name]()
    if settings_name == "summed passes" and kr.size() == 1:
        # The sum of two averages; twice a number is exact.
        optimizer.learning_rate = 2.0 * float(optimizer.learning_rate)
    if kr.size() > 1:
        kr.DistributedOptimizer(optimizer, **settings)
    # TensorFlow takes the norm of rows before it adds up those of one index,
    # which are others on one rank; the legacy momentum is that of rows, too.
    model = make_model(sparse="clip" not in optimizer_name)
    model.compile(optimizer, "mse")
    x, y = make_data(STEPS * BATCH_SIZE)
    x, batch_size = of_this_rank(x, passes)
    y, _ = of_this_rank(y, passes)
    with Counted() as counted:
        model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0)
    return {
        "weights": [weight.tolist() for weight in model.get_weights()],
        "iterations": int(optimizer.iterations),
        "collectives": counted.collectives,
        "gathers": counted.gathers,
    }


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def progress(kind):
    """What `fit` shows where it can draw over a line, or cannot."""
    model = make_model()
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.05))
    model.compile(optimizer, "mse")
    x, y = kr.data.shard(make_data(10 * BATCH_SIZE))
    stream = _Terminal() if kind == "terminal" else io.StringIO()
    with contextlib.redirect_stdout(stream):
        model.fit(
            x,
            y,
            batch_size=BATCH_SIZE // 2,
            epochs=2,
            callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()],
        )
    return stream.getvalue()


def compression(optimizer_name):
    """A gradient that float16 rounds to 1: what is subtracted tells."""
    optimizer = kr.DistributedOptimizer(
        {"new": keras.optimizers.SGD, "legacy": legacy.SGD}[optimizer_name](
            1.0
        ),
        compression=kr.Compression.fp16,
    )
    variable = tf.Variable([0.0])
    optimizer.apply_gradients([(tf.constant([1.0 + 2.0**-12]), variable)])
    return float(variable[0])


def reductions(optimizer_name):
    """What each `op` makes of 1 + rank."""
    results = {}
    for op in (kr.Average, kr.Sum, kr.Min, kr.Max, kr.Product):
        make = {"new": keras.optimizers.SGD, "legacy": legacy.SGD}
        optimizer = kr.DistributedOptimizer(make[optimizer_name](1.0), op)
        variable = tf.Variable([0.0])
        gradient = tf.constant([1.0 + kr.rank()])
        optimizer.apply_gradients([(gradient, variable)])
        results[op.name] = -float(variable[0])
    return results


def overflow(optimizer_name, implicit, settings_name="plain"):
    """One rank's gradients overflow in the second step; all skip it."""
    settings = SETTINGS[settings_name]
    passes = settings.get("backward_passes_per_step", 1)
    make = {"new": keras.optimizers.SGD, "legacy": legacy.SGD}
    optimizer = make[optimizer_name](0.5)
    if implicit:
        keras.mixed_precision.set_global_policy("mixed_float16")
    else:
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    optimizer = kr.DistributedOptimizer(optimizer, **settings)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    scales, weights = [], []
    for step in range(3):
        for _ in range(passes):
            value = np.inf if step == 1 and kr.rank() == 1 else 1.0
            model.train_on_batch(np.full((2, 1), value, "f4"), np.ones((2, 1)))
        scales.append(float(model.optimizer.loss_scale))
        weights.append([w.tolist() for w in model.get_weights()])
    return scales, weights


def local_variables(optimizer_name, scaled):
    """One variable is each rank's own."""
    make = {"new": keras.optimizers.SGD, "legacy": legacy.SGD}
    optimizer = kr.DistributedOptimizer(
        make[optimizer_name](1.0), scale_local_gradients=scaled
    )
    shared, own = tf.Variable([0.0]), tf.Variable([0.0])
    optimizer.register_local_var(own)
    gradient = tf.constant([2.0 + 2.0 * kr.rank()])
    optimizer.apply_gradients([(gradient, shared), (gradient, own)])
    return float(shared[0]), float(own[0])


def local_layers():
    """A layer that each rank trains by itself, through `fit`."""
    local = keras.layers.Dense(2, name="local")
    model = keras.Sequential([local, keras.layers.Dense(1, name="shared")])
    model.compile(
        kr.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), [local]),
        "mse",
    )
    rng = np.random.default_rng(kr.rank())
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))
    for _ in range(2):
        model.fit(
            x,
            y,
            verbose=0,
            callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()],
        )
    return [[w.tolist() for w in layer.get_weights()] for layer in model.layers]


def numbered_otherwise(kind):
    """Rank 0 has made a layer before, so its paths have other numbers."""
    keras.backend.clear_session()
    if kr.rank() == 0:
        keras.layers.Dense(1).build((None, 3))
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    kr.broadcast_variables(model.variables, root_rank=0)
    sgd = {"new": keras.optimizers.SGD, "legacy": legacy.SGD}[kind]
    optimizer = kr.DistributedOptimizer(sgd(0.1))

    # Eagerly, so that names are made once.
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        weights = model.trainable_variables
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    for _ in range(3):
        step(tf.ones((2, 3)) * (1.0 + kr.rank()))
    return model.layers[0].name, [w.tolist() for w in model.get_weights()]


def copies(optimizer_name):
    """Every copy reduces, and goes on where the original is."""
    copied = {
        "from_config": lambda o: type(o).from_config(o.get_config()),
        "pickle": lambda o: pickle.loads(pickle.dumps(o)),
        "deepcopy": copy.deepcopy,
        "deserialize": lambda o: kr.DistributedOptimizer(
            keras.optimizers.deserialize(keras.optimizers.serialize(o)),
            kr.Sum,
            groups=2,
        ),
    }
    found = {}
    for name, make_copy in copied.items():
        optimizer = OPTIMIZERS[optimizer_name]()
        plain_class = type(optimizer)
        kr.DistributedOptimizer(optimizer, kr.Sum, groups=2)
        variable = tf.Variable([1.0, 2.0])
        gradient = tf.constant([0.5, -0.25]) * (1.0 + kr.rank())
        if name in ("pickle", "deepcopy"):
            optimizer.apply_gradients([(gradient, variable)])
        duplicate = make_copy(optimizer)
        other = tf.Variable(variable)
        for _ in range(2):
            optimizer.apply_gradients([(gradient, variable)])
            duplicate.apply_gradients([(gradient, other)])
        found[name] = (
            duplicate is not optimizer
            and isinstance(optimizer, plain_class)
            and isinstance(duplicate, plain_class)
            and distributed_settings(duplicate)
            == distributed_settings(optimizer)
            and duplicate.get_config() == optimizer.get_config()
            and int(duplicate.iterations) == int(optimizer.iterations)
            and variable.numpy().tolist() == other.numpy().tolist()
        )
    return found


def state_is_kept():
    """Variables of an optimizer that has trained are still the same ones."""
    found = {}
    for name in ("Adam", "legacy Adam"):
        optimizer = OPTIMIZERS[name]()
        variable = tf.Variable([1.0])
        with kr.allow_local_updates():
            optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        before = optimizer.variables
        before = before() if callable(before) else before
        kr.DistributedOptimizer(optimizer)
        after = optimizer.variables
        after = after() if callable(after) else after
        found[name] = all(
            a is b for a, b in zip(before, after, strict=True)
        ) and int(optimizer.iterations)
    return found


def local_updates():
    """Optimizers that do not reduce are refused."""
    texts = {}
    for name in ("SGD", "legacy SGD", "LossScaleOptimizer"):
        model = make_model()
        model.compile(OPTIMIZERS[name](), "mse")
        x, y = make_data(8)
        try:
            model.fit(x, y, verbose=0)
            texts[name] = ""
        except kr.errors.LocalUpdateError as error:
            texts[name] = str(error)
    return texts


class Largest(keras.metrics.Metric):
    """The largest output, and its variables say that they are sums."""

    def __init__(self, name="largest", **kwargs):
        super().__init__(name=name, **kwargs)
        self.largest = self.add_weight(name="largest", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        found = tf.reduce_max(tf.abs(y_pred))
        self.largest.assign(tf.maximum(self.largest, found))

    def result(self):
        return self.largest


class Rows(keras.metrics.Metric):
    """The number of rows: a sum."""

    def __init__(self, name="rows", **kwargs):
        super().__init__(name=name, **kwargs)
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        rows = tf.cast(tf.shape(y_pred)[0], self.rows.dtype)
        self.rows.assign_add(rows)

    def result(self):
        return self.rows


def metric_state(name):
    """Trains with a metric of its own; returns its results, or the error."""
    metric = {"largest": Largest, "rows": Rows}[name]()
    model = make_model()
    model.compile(kr.DistributedOptimizer("sgd"), "mse", metrics=[metric])
    x, y = (of_this_rank(part, 1)[0] for part in make_data(48))
    callbacks = [
        kr.callbacks.BroadcastGlobalVariablesCallback(),
        kr.callbacks.MetricAverageCallback(),
    ]
    results = []
    try:
        # The second `fit` finds it tried.
        for _ in range(2):
            history = model.fit(
                x, y, batch_size=8, verbose=0, callbacks=callbacks
            )
            results += history.history[name]
    except ValueError as error:
        return str(error)
    return results


def fit_with_callbacks(directory, subclassed):
    """All callbacks at once, with parts of unequal size."""
    keras.utils.set_random_seed(11 + kr.rank())
    if subclassed:
        model = Subclassed()
    else:
        model = make_model()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
        "mse",
        metrics=["mae", keras.metrics.MeanSquaredError(name="own")],
    )
    x, y = make_data(96)
    # Of the validation, rank 0 has three quarters.
    mine = slice(0, 72) if kr.rank() == 0 else slice(72, 96)
    if kr.size() == 1:
        mine = slice(0, 96)
    part, batch_size = of_this_rank(x, 1)
    history = model.fit(
        part,
        of_this_rank(y, 1)[0],
        batch_size=batch_size,
        epochs=3,
        validation_data=(x[mine], y[mine]),
        validation_batch_size=10,
        verbose=0,
        shuffle=False,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
            kr.callbacks.MetricAverageCallback(),
            kr.callbacks.ConsistencyCheck(every=2),
            kr.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2),
            kr.callbacks.RankZeroOnly(
                keras.callbacks.CSVLogger(f"{directory}/log{subclassed}.csv")
            ),
            kr.callbacks.ModelCheckpoint(
                f"{directory}/best{subclassed}.weights.h5",
                save_best_only=True,
                save_weights_only=True,
            ),
        ],
    ).history
    return {
        "history": {k: [float(v) for v in vs] for k, vs in history.items()},
        "weights": [w.tolist() for w in model.get_weights()],
        "evaluated": [
            float(v) for v in model.evaluate(x, y, verbose=0, batch_size=10)
        ],
    }


def saved_model(directory, suffix):
    """A file is plain Keras', and `kr.load_model` goes on with it."""
    model = make_model()
    model.compile(kr.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    x, y = make_data(32)
    model.fit(x, y, verbose=0, shuffle=False)
    path = f"{directory}/model{suffix}"
    if kr.rank() == 0:
        model.save(path)
    kr.barrier()
    plain = keras.models.load_model(path)
    loaded = kr.load_model(path, groups=2)
    kr.barrier()
    model.fit(x, y, verbose=0, shuffle=False)
    loaded.fit(x, y, verbose=0, shuffle=False)
    return {
        "plain": distributed_settings(plain.optimizer) is None,
        "groups": distributed_settings(loaded.optimizer).groups,
        "iterations": int(loaded.optimizer.iterations),
        "equal": all(
            (a == b).all()
            for a, b in zip(
                model.get_weights(), loaded.get_weights(), strict=True
            )
        ),
    }


def checkpoints(directory):
    """`BackupAndRestore`: an interrupted training goes on."""

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 5:
                raise KeyboardInterrupt

    def fit(where, *callbacks):
        keras.utils.set_random_seed(5)
        model = make_model()
        model.compile(
            kr.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse"
        )
        x, y = make_data(64)
        backup = kr.callbacks.BackupAndRestore(where, save_freq=2)
        model.fit(
            *(x, y),
            batch_size=16,
            epochs=3,
            shuffle=False,
            verbose=0,
            callbacks=[backup, *callbacks],
        )
        return [weight.tolist() for weight in model.get_weights()]

    try:
        fit(f"{directory}/a", Stop())
    except KeyboardInterrupt:
        kr.barrier()
    return fit(f"{directory}/a") == fit(f"{directory}/b")


def normalization():
    """`SyncBatchNormalization`, with batches of unequal size."""
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    layer = kr.SyncBatchNormalization(epsilon=1e-5)
    x = np.random.default_rng(3).normal(size=(8, 5, 3)) * 4 + 1
    part = x if kr.size() == 1 else x[:6] if kr.rank() == 0 else x[6:]
    weight = tf.Variable(tf.constant(part))
    with tf.GradientTape() as local:
        normalized = layer(weight, training=True)
        loss = tf.reduce_sum(normalized**3)
    gradient = local.gradient(loss, weight)
    return [
        normalized.numpy().tolist(),
        gradient.numpy().tolist(),
        layer.moving_mean.numpy().tolist(),
        layer.moving_variance.numpy().tolist(),
    ]


def tape():
    """A loop with `DistributedGradientTape`."""
    keras.backend.set_floatx("float64")
    keras.mixed_precision.set_global_policy("float64")
    model = make_model()
    optimizer = keras.optimizers.SGD(0.1)
    x, y = make_data(STEPS * BATCH_SIZE)
    x, batch_size = of_this_rank(x, 1)
    y, _ = of_this_rank(y, 1)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as local:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        distributed = kr.DistributedGradientTape(local)
        gradients = distributed.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )

    for start in range(0, len(x), batch_size):
        step(x[start : start + batch_size], y[start : start + batch_size])
    return [weight.tolist() for weight in model.get_weights()]


def collectives():
    """Each op eagerly, in a function and in a TensorFlow 1 graph."""
    rank, size = kr.rank(), kr.size()

    def all_of_them(x):
        gathered, splits = kr.alltoall(
            tf.concat([x, x], 0), splits=tf.constant([2, 2]), name="alltoall"
        )
        return [
            kr.allreduce(x, name="average"),
            kr.allreduce(x, kr.Sum, name="sum"),
            kr.grouped_allreduce([x, 2 * x], kr.Max, name="group")[1],
            kr.allgather(x, name="gather"),
            kr.broadcast(x, 1, name="broadcast"),
            kr.reducescatter(x, kr.Sum, name="scatter"),
            gathered,
            splits,
        ]

    x = np.array([1.0, 2.0], "f4") * (1 + rank)
    found = {
        "eager": [t.numpy().tolist() for t in all_of_them(tf.constant(x))],
        "function": [
            t.numpy().tolist() for t in tf.function(all_of_them)(tf.constant(x))
        ],
    }
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors = all_of_them(tf.constant(x))
        found["graph"] = [a.tolist() for a in session.run(tensors)]
    ones = np.array([1.0, 2.0])
    everywhere = np.concatenate([ones * (1 + r) for r in range(size)])
    found["expected"] = [
        (ones * (1 + size) / 2).tolist(),
        (ones * size * (1 + size) / 2).tolist(),
        (ones * 2 * size).tolist(),
        everywhere.tolist(),
        (ones * 2).tolist(),
        [(ones * size * (1 + size) / 2).tolist()[rank]],
        everywhere.tolist(),
        [2] * size,
    ]
    with tf.GradientTape() as local:
        variable = tf.Variable(x)
        total = tf.reduce_sum(kr.allreduce(variable, name="gradient"))
    found["gradient"] = local.gradient(total, variable).numpy().tolist()
    kr.barrier()
    return found
