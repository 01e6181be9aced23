"""What ranks do with models of Keras, whatever framework it computes with.

`rank_keras` of each framework's folder chooses the framework and imports this.
"""

import os
import sys

import keras
import numpy as np

import keras_ring as kr
from keras_ring.errors import KerasRingError

ROWS, COLUMNS, BATCH = 96, 6, 24


def init():
    kr.init()
    begin()
    return kr.rank(), kr.size()


def begin(seed=3):
    keras.utils.clear_session()
    # Keras forgets these, too.
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    keras.utils.set_random_seed(seed)


def data(rows=ROWS):
    random = np.random.default_rng(5)
    x = random.normal(size=(rows, COLUMNS))
    return x, np.tanh(x @ random.normal(size=(COLUMNS, 2)))


def share(*arrays):
    """Returns the rows of this rank in each batch."""
    rank, size = kr.rank(), kr.size()
    return [each[rank::size] for each in arrays]


@keras.saving.register_keras_serializable("tests")
class Squares(keras.losses.Loss):
    """The mean of squares in float64: operations of Keras round to float32."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = keras.ops.convert_to_tensor(y_true, "float64")
        count = int(np.prod(y_true.shape))
        return ((y_true - y_pred) ** 2).sum() / count


class Largest(keras.metrics.Metric):
    """A metric whose state is declared as a sum, and is none."""

    def __init__(self):
        super().__init__()
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, y_true, y_pred, sample_weight=None):
        found = keras.ops.max(y_pred)
        self.largest.assign(keras.ops.maximum(self.largest, found))

    def result(self):
        return keras.ops.convert_to_tensor(self.largest)


@keras.saving.register_keras_serializable("tests")
class Exact(keras.layers.Layer):
    """A dense layer in float64: operations of Keras round to float32."""

    def __init__(self, units, **settings):
        super().__init__(**settings)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(
            (shape[-1], self.units), "glorot_uniform", name="kernel"
        )
        self.bias = self.add_weight((self.units,), "zeros", name="bias")

    def call(self, inputs):
        sums = inputs @ self.kernel.value + self.bias.value
        return sums / (1.0 + sums * sums)

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def make(kind="dense"):
    layers = keras.layers
    if kind == "dense":
        return keras.Sequential([keras.Input((COLUMNS,)), Exact(8), Exact(2)])
    if kind == "noisy":
        return keras.Sequential(
            [keras.Input((COLUMNS,)), Exact(8), layers.Dropout(0.3), Exact(2)]
        )
    if kind == "unbuilt":
        return keras.Sequential([Exact(8), Exact(2)])
    if kind == "converted":
        return keras.Sequential(
            [
                keras.Input((COLUMNS,)),
                layers.Dense(8),
                kr.SyncBatchNormalization(),
                layers.Dense(2),
            ]
        )
    raise ValueError(kind)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, clipnorm=0.1),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, use_ema=True),
    "lion": lambda: keras.optimizers.Lion(1e-3, global_clipnorm=0.5),
    "accumulating": lambda: keras.optimizers.Adam(
        0.01, gradient_accumulation_steps=2
    ),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=16.0
    ),
}


def trained(kind, optimizer, in_job, epochs=3):
    """Returns the losses and weights of a training of all rows."""
    model = make(kind)
    made = OPTIMIZERS[optimizer]()
    x, y = data()
    batch = BATCH
    callbacks = []
    if in_job:
        made = kr.DistributedOptimizer(made)
        x, y = share(x, y)
        batch = BATCH // kr.size()
        callbacks = [
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.MetricAverageCallback(),
        ]
    model.compile(made, Squares(), metrics=["mae"])
    history = model.fit(
        x,
        y,
        batch_size=batch,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return history.history, model.get_weights()


def beside_one_process(kind, optimizer):
    """Returns how far ranks are from one process with whole batches."""
    init()
    with kr.allow_local_updates():
        alone, wanted = trained(kind, optimizer, in_job=False)
    begin(3 if kr.rank() == 0 else 4)
    together, found = trained(kind, optimizer, in_job=True)
    apart = max(
        float(np.max(np.abs(a - b))) for a, b in zip(wanted, found, strict=True)
    )
    of_metrics = max(
        abs(a - b)
        for name in alone
        for a, b in zip(alone[name], together[name], strict=True)
    )
    return apart, of_metrics


def mistakes():
    """Returns the first words of what a program is told of its mistakes."""
    rank, _ = init()
    x, y = share(*data())
    told = {}

    def note(name, call):
        try:
            call()
        except (KerasRingError, ValueError, ImportError) as error:
            told[name] = f"{type(error).__name__}: {error}"

    plain = make()
    plain.compile("sgd", "mse")
    note("plain", lambda: plain.fit(x, y, verbose=0))
    keras.utils.set_random_seed(rank)
    apart = make()
    apart.compile(kr.DistributedOptimizer("sgd"), "mse")
    note("apart", lambda: apart.fit(x, y, verbose=0))
    largest = make()
    largest.compile(kr.DistributedOptimizer("sgd"), "mse", metrics=[Largest()])
    kr.broadcast_model(largest)
    average = [kr.callbacks.MetricAverageCallback()]
    note("metric", lambda: largest.fit(x, y, verbose=0, callbacks=average))
    same = make()
    same.compile(kr.DistributedOptimizer("sgd"), "mse")
    kr.broadcast_model(same)
    same.fit(x, y, batch_size=8, epochs=2, verbose=0)
    if rank == 1:
        kernel = same.layers[0].kernel
        kernel.assign(kernel + 1e-6)
    note("drifted", lambda: same.fit(x, y, batch_size=8, verbose=0))
    return told


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise InterruptedError


def resumed(directory):
    """Returns whether an interruption changes the weights at the end."""
    init()

    def run(folder, *more):
        begin()
        model = make("noisy")
        model.compile(kr.DistributedOptimizer("adam"), Squares())
        backup = kr.callbacks.BackupAndRestore(
            os.path.join(directory, folder), delete_checkpoint=False
        )
        broadcast = kr.callbacks.BroadcastGlobalVariablesCallback()
        model.fit(
            *share(*data()),
            batch_size=8,
            epochs=4,
            shuffle=False,
            verbose=0,
            callbacks=[broadcast, backup, *more],
        )
        return model.get_weights()

    whole = run("whole")
    try:
        run("again", Stop())
    except InterruptedError:
        pass
    again = run("again")
    return all((a == b).all() for a, b in zip(whole, again, strict=True))


def saved(directory):
    """Returns predictions before and after a model went through a file."""
    init()
    model = make()
    model.compile(kr.DistributedOptimizer("adam"), "mse")
    x, y = share(*data())
    path = os.path.join(directory, "model.keras")
    model.fit(
        x,
        y,
        batch_size=8,
        shuffle=False,
        verbose=0,
        callbacks=[kr.callbacks.ModelCheckpoint(path)],
    )
    loaded = kr.load_model(path)
    loaded.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    whole, _ = data()
    return (
        model.predict(whole, verbose=0),
        loaded.predict(whole, verbose=0),
        kr.predict(model, whole, verbose=0),
        model.evaluate(*data(), verbose=0),
        kr.evaluate(model, *data(), verbose=0),
    )


def compiled_with(**settings):
    """Returns a model whose `compile` gets further arguments."""
    model = make()
    compiled = model.compile
    model.compile = lambda *arguments: compiled(*arguments, **settings)
    return model


def ways_to_train(more=lambda compared, x, y, mine: None):
    """Trains in several ways; returns how far each is from one process.

    Args:
        more: Function that compares more of them.
    """
    init()
    x, y = data()
    mine = share(x, y)
    size = kr.size()
    apart = {}

    def compared(name, train, alone, model_of=make):
        begin()
        with kr.allow_local_updates():
            plain = model_of()
            plain.compile(OPTIMIZERS["sgd"](), Squares())
            alone(plain)
        begin()
        model = model_of()
        model.compile(kr.DistributedOptimizer(OPTIMIZERS["sgd"]()), Squares())
        kr.broadcast_model(model)
        train(model)
        apart[name] = max(
            float(np.max(np.abs(a - b)))
            for a, b in zip(
                plain.get_weights(), model.get_weights(), strict=True
            )
        )

    def on_batches(model, x, y, rows):
        for at in range(0, len(x), rows):
            model.train_on_batch(x[at : at + rows], y[at : at + rows])

    compared(
        "train_on_batch",
        lambda model: on_batches(model, *mine, BATCH // size),
        lambda model: on_batches(model, x, y, BATCH),
    )

    def fit(model, data, **arguments):
        model.fit(data, epochs=2, shuffle=False, verbose=0, **arguments)

    class Batches(keras.utils.PyDataset):
        def __init__(self, x, y, rows):
            super().__init__()
            self.x, self.y, self.rows = x, y, rows

        def __len__(self):
            return len(self.x) // self.rows

        def __getitem__(self, index):
            part = slice(index * self.rows, (index + 1) * self.rows)
            return self.x[part], self.y[part]

    # A part of a `PyDataset` is some of its batches.
    compared(
        "PyDataset",
        lambda model: fit(model, kr.data.shard(Batches(x, y, BATCH // size))),
        lambda model: fit(model, Batches(x, y, BATCH)),
    )

    def by_two(model, data):
        fit(model, data)
        made = OPTIMIZERS["adam"]()
        if model.optimizer.__class__ is not keras.optimizers.SGD:
            made = kr.DistributedOptimizer(made)
        former = model.optimizer
        model.compile(made, Squares())
        fit(model, data)
        model.compile(former, Squares())
        fit(model, data)

    compared(
        "two optimizers",
        lambda model: by_two(
            model, kr.data.shard(Batches(x, y, BATCH // size))
        ),
        lambda model: by_two(model, Batches(x, y, BATCH)),
    )

    def with_frozen():
        model = make()
        model.layers[0].trainable = False
        return model

    compared(
        "frozen",
        lambda model: fit(model, kr.data.shard(Batches(x, y, BATCH // size))),
        lambda model: fit(model, Batches(x, y, BATCH)),
        with_frozen,
    )

    compared(
        "run_eagerly",
        lambda model: fit(model, Batches(*mine, BATCH // size)),
        lambda model: fit(model, Batches(x, y, BATCH)),
        lambda: compiled_with(run_eagerly=True),
    )
    more(compared, x, y, mine)
    return apart


def weighted():
    """Ranks with other numbers of tokens train as one process does."""
    rank, size = init()
    x, y = data()
    weights = np.zeros(len(x))
    weights[: len(x) // 2] = 1.0
    weights[len(x) // 2 :: 5] = 3.0
    rows = len(x) // size
    part = slice(rank * rows, (rank + 1) * rows)

    def trained(optimizer, x, y, weights, alone):
        begin()
        model = make()
        model.compile(optimizer, "mse")
        if not alone:
            kr.broadcast_model(model)
        for _ in range(4):
            model.train_on_batch(x, y, sample_weight=weights)
        return model.get_weights()

    with kr.allow_local_updates():
        wanted = trained(
            keras.optimizers.SGD(0.1),
            x[: rows * size],
            y[: rows * size],
            weights[: rows * size],
            True,
        )
    found = trained(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1), weighted=True),
        x[part],
        y[part],
        weights[part],
        False,
    )
    return max(
        float(np.max(np.abs(a - b))) for a, b in zip(wanted, found, strict=True)
    )


def own_parts():
    """Variables of one rank alone, groups, compression and random numbers."""
    init()
    x, y = share(*data())
    model = make()
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(0.1), compression=kr.Compression.fp16, groups=2
    )
    model.compile(optimizer, Squares())
    kr.broadcast_model(model)
    optimizer.register_local_var(model.layers[1].bias)
    model.fit(x, y, batch_size=8, epochs=3, verbose=0)
    by_rank = kr.allgather_object(model.get_weights())
    same = [
        all((weights[index] == by_rank[0][index]).all() for weights in by_rank)
        for index in range(4)
    ]
    drop = keras.layers.Dropout(0.5)
    noisy = keras.Sequential([keras.Input((50,)), drop])
    kr.broadcast_model(noisy)
    masks = kr.allgather_object(
        keras.ops.convert_to_numpy(noisy(np.ones((1, 50)), training=True))
    )
    differ = all((mask != masks[0]).any() for mask in masks[1:])
    return same, differ


def scheduled():
    """A warm-up with momentum correction; returns the rates and weights."""
    init()
    model = make()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.4, momentum=0.9)),
        Squares(),
    )
    rates = []
    model.fit(
        *share(*data()),
        batch_size=8,
        epochs=4,
        verbose=0,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.LearningRateWarmupCallback(
                initial_lr=0.4, warmup_epochs=2
            ),
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: rates.append(
                    float(model.optimizer.learning_rate)
                )
            ),
        ],
    )
    by_rank = kr.allgather_object(model.get_weights())
    same = all(
        (a == b).all()
        for weights in by_rank
        for a, b in zip(weights, by_rank[0], strict=True)
    )
    return rates, same


def imported():
    """Returns the frameworks that a training imports beside its own."""
    init()
    model = make()
    model.compile(kr.DistributedOptimizer("sgd"), Squares())
    kr.broadcast_model(model)
    model.fit(*share(*data()), verbose=0)
    kr.barrier()
    others = {"tensorflow", "jax", "torch"} - {keras.backend.backend()}
    return sorted(others & set(sys.modules))
