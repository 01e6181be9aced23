"""What ranks do with models of Keras that compute with PyTorch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

import keras_ring as kr
from keras_ring.errors import KerasRingError

ROWS, COLUMNS, BATCH = 96, 6, 24


def init():
    torch.set_num_threads(1)
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
    """The mean of squares in float64: Keras' own rounds to float32."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        return torch.mean(torch.square(y_true - y_pred))


@keras.saving.register_keras_serializable("tests")
class Exact(keras.layers.Layer):
    """A dense layer in float64: a matrix product of Keras is in float32."""

    def __init__(self, units, **settings):
        super().__init__(**settings)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(
            (shape[-1], self.units), "glorot_uniform", name="kernel"
        )
        self.bias = self.add_weight((self.units,), "zeros", name="bias")

    def call(self, inputs):
        return torch.tanh(inputs @ self.kernel.value + self.bias.value)

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def make(kind="dense"):
    layers = keras.layers
    if kind == "dense":
        return keras.Sequential([keras.Input((COLUMNS,)), Exact(8), Exact(2)])
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
        except (KerasRingError, ValueError) as error:
            told[name] = f"{type(error).__name__}: {error}"

    plain = make()
    plain.compile("sgd", "mse")
    note("plain", lambda: plain.fit(x, y, verbose=0))
    keras.utils.set_random_seed(rank)
    apart = make()
    apart.compile(kr.DistributedOptimizer("sgd"), "mse")
    note("apart", lambda: apart.fit(x, y, verbose=0))
    same = make()
    same.compile(kr.DistributedOptimizer("sgd"), "mse")
    kr.broadcast_model(same)
    same.fit(x, y, batch_size=8, epochs=2, verbose=0)
    if rank == 1:
        kernel = same.layers[0].kernel
        kernel.assign(kernel + 1e-6)
    note("drifted", lambda: same.fit(x, y, batch_size=8, verbose=0))
    return told


def resumed(directory):
    """Returns weights of a training, and of one that was interrupted."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise InterruptedError

    def run(*more):
        begin()
        model = make()
        model.compile(kr.DistributedOptimizer("adam"), "mse")
        try:
            model.fit(
                *share(*data()),
                batch_size=8,
                epochs=4,
                shuffle=False,
                verbose=0,
                callbacks=[
                    kr.callbacks.BroadcastGlobalVariablesCallback(),
                    kr.callbacks.BackupAndRestore(
                        os.path.join(directory, "backup"),
                        delete_checkpoint=False,
                    ),
                    *more,
                ],
            )
        except InterruptedError:
            pass
        return model

    init()
    run(Stop())
    again = run().get_weights()
    begin()
    whole = make()
    whole.compile(kr.DistributedOptimizer("adam"), "mse")
    whole.fit(*share(*data()), batch_size=8, epochs=4, shuffle=False, verbose=0)
    return again, whole.get_weights()


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
        verbose=0,
        callbacks=[kr.callbacks.ModelCheckpoint(path)],
    )
    loaded = kr.load_model(path)
    loaded.fit(x, y, batch_size=8, verbose=0)
    model.fit(x, y, batch_size=8, verbose=0)
    whole, _ = data()
    return (
        model.predict(whole, verbose=0),
        loaded.predict(whole, verbose=0),
        kr.predict(model, whole, verbose=0),
        model.evaluate(*data(), verbose=0),
        kr.evaluate(model, *data(), verbose=0),
    )
