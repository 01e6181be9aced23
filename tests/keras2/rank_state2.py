"""The state of a model that ranks share, and what is each rank's own."""

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.lanes import compat
from keras_ring.keras.model import model_optimizers, model_state

keras = tf.keras
legacy = keras.optimizers.legacy

KINDS = {
    "new": (
        lambda: keras.optimizers.Adam(0.01),
        lambda: keras.optimizers.SGD(0.01, momentum=0.9),
    ),
    "legacy": (
        lambda: legacy.Adam(0.01),
        lambda: legacy.SGD(0.01, momentum=0.9),
    ),
}


class Parts(keras.Model):
    """Is trained in parts, and never called."""

    def __init__(self):
        super().__init__()
        self.local = keras.layers.Dense(4, input_shape=(8,))
        self.first = keras.Sequential(
            [
                keras.Input((8,)),
                self.local,
                keras.layers.BatchNormalization(),
            ]
        )
        self.second = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(1)]
        )
        self.flip = keras.layers.RandomTranslation(0.5, 0.5, seed=3)
        self.flip.build((None, 4, 4, 1))

    def compile(self, one, two):
        super().compile()
        self.one = one
        self.two = two

    def train_step(self, x):
        with tf.GradientTape(persistent=True) as tape:
            hidden = self.first(x, training=True)
            loss = tf.reduce_mean(self.second(hidden) ** 2)
            other = tf.reduce_mean((hidden - 1.0) ** 2)
        for part, optimizer, of in (
            (self.first, self.one, other),
            (self.second, self.two, loss),
        ):
            weights = part.trainable_weights
            gradients = tape.gradient(of, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"loss": loss}

    def moved(self):
        pixels = np.arange(64, dtype="float32").reshape((4, 4, 4, 1))
        return self.flip(pixels, training=True).numpy().tolist()


def before_each_call():
    kr.init()
    keras.backend.clear_session()
    keras.utils.set_random_seed(11 + kr.rank())


def _make(kind):
    one, two = (make() for make in KINDS[kind])
    model = Parts()
    one = kr.PartialDistributedOptimizer(one, local_layers=[model.local])
    model.compile(one, kr.DistributedOptimizer(two))
    return model


def _fit(model, *callbacks):
    x = np.random.default_rng(kr.rank()).normal(size=(16, 8)).astype("float32")
    model.fit(
        x, batch_size=8, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


def _values(model):
    variables = model_state.state_variables(model)
    return [np.asarray(v).tolist() for v in variables]


def parts(directory, kind):
    """Two optimizers, and what each rank has of its own."""
    model = _make(kind)
    _fit(model, kr.callbacks.BroadcastGlobalVariablesCallback())
    kr.checkpoint.save(model, f"{directory}/{kind}", 1)
    saved = _values(model)
    slots = compat.slots_of(model.one, model.local.trainable_variables)
    owned = [
        np.asarray(v).tolist()
        for v in (*model.local.weights, *slots, *compat.seed_variables(model))
    ]
    _fit(model)
    other = _make(kind)
    before = len(compat.optimizer_variables(other.one))
    step = kr.checkpoint.restore(other, f"{directory}/{kind}")
    restored = _values(other)
    _fit(other)
    found = model_optimizers.optimizers_of(other)
    return {
        "step": step,
        "restored": restored == saved,
        "goes_on": _values(other) == _values(model),
        "owned": owned,
        "num_slots": len(slots),
        "built": before < len(compat.optimizer_variables(other.one)),
        "iterations": {k: int(o.iterations) for k, o in found.items()},
        "moved": model.moved(),
    }
