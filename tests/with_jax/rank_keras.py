"""What ranks do with models of Keras that compute with JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np

import keras_ring as kr
from keras_ring.errors import KerasRingError
from tests.backends import ranks
from tests.backends.ranks import (
    BATCH,
    OPTIMIZERS,
    Exact,
    Squares,
    beside_one_process,
    data,
    imported,
    init,
    make,
    mistakes,
    own_parts,
    resumed,
    saved,
    scheduled,
    share,
    weighted,
)

jax.config.update("jax_enable_x64", True)

__all__ = [
    "OPTIMIZERS",
    "beside_one_process",
    "imported",
    "mistakes",
    "own_parts",
    "resumed",
    "saved",
    "scheduled",
    "weighted",
]


def ways_to_train():
    """Returns how far trainings are from those of one process."""
    return ranks.ways_to_train(_more)


def _values(variables):
    return [variable.value for variable in variables]


def _step_of(model):
    """Returns a step of the program's own, as Keras' guides write it."""

    def loss_of(trained, others, x, y):
        predicted, others = model.stateless_call(trained, others, x)
        return Squares()(y, predicted), others

    gradient_of = jax.value_and_grad(loss_of, has_aux=True)

    def step(state, x, y):
        trained, others, of_optimizer = state
        (_, others), gradients = gradient_of(trained, others, x, y)
        trained, of_optimizer = model.optimizer.stateless_apply(
            of_optimizer, gradients, trained
        )
        return trained, others, of_optimizer

    return step


def _more(compared, x, y, mine):
    size = kr.size()

    def loop(model, x, y, rows, compiled):
        model.optimizer.build(model.trainable_variables)
        step = jax.jit(_step_of(model)) if compiled else _step_of(model)
        variables = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
        )
        state = tuple(map(_values, variables))
        for at in range(0, len(x), rows):
            state = step(state, x[at : at + rows], y[at : at + rows])
        for some, values in zip(variables, state, strict=True):
            for variable, value in zip(some, values, strict=True):
                variable.assign(value)

    compared(
        "jit",
        lambda model: loop(model, *mine, BATCH // size, True),
        lambda model: loop(model, x, y, BATCH, True),
    )
    compared(
        "no jit",
        lambda model: loop(model, *mine, BATCH // size, False),
        lambda model: loop(model, x, y, BATCH, False),
    )

    def by_hand(model, x, y, rows):
        weights = model.trainable_variables

        def loss_of(values, x, y):
            predicted, _ = model.stateless_call(values, [], x)
            return Squares()(y, predicted)

        for at in range(0, len(x), rows):
            gradients = jax.grad(loss_of)(
                _values(weights), x[at : at + rows], y[at : at + rows]
            )
            model.optimizer.apply(gradients, weights)

    compared(
        "apply",
        lambda model: by_hand(model, *mine, BATCH // size),
        lambda model: by_hand(model, x, y, BATCH),
    )

    class Custom(keras.Sequential):
        """A model with a training step of its own."""

        def train_step(self, state, batch):
            trained, others, of_optimizer, of_metrics = state
            step = _step_of(self)
            *found, of_optimizer = step((trained, others, of_optimizer), *batch)
            return {"loss": jnp.zeros(())}, (*found, of_optimizer, of_metrics)

    def fit(model, x, y, rows):
        model.fit(x, y, batch_size=rows, epochs=2, shuffle=False, verbose=0)

    compared(
        "steps_per_execution",
        lambda model: fit(model, *mine, BATCH // size),
        lambda model: fit(model, x, y, BATCH),
        lambda: ranks.compiled_with(steps_per_execution=3),
    )
    compared(
        "train_step",
        lambda model: fit(model, *mine, BATCH // size),
        lambda model: fit(model, x, y, BATCH),
        lambda: Custom([keras.Input((6,)), Exact(8), Exact(2)]),
    )


def drifted():
    """Returns what is told where ranks part after a while.

    A callback changes a weight on one rank within an epoch.
    """
    rank, _ = init()
    x, y = share(*data())

    class Changes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and rank == 1:
                bias = self.model.layers[0].bias
                bias.assign(bias + 1e-6)

    model = make()
    model.compile(kr.DistributedOptimizer("sgd"), Squares())
    kr.broadcast_model(model)
    try:
        model.fit(
            x, y, batch_size=4, epochs=20, verbose=0, callbacks=[Changes()]
        )
    except KerasRingError as error:
        return str(error)
    return ""


def of_another_binding():
    """Returns what a plain optimizer is told in a job that `kr` began not."""
    import keras_ring.jax

    keras_ring.jax.init()
    model = make()
    model.compile(kr.DistributedOptimizer("sgd"), Squares())
    kr.broadcast_model(model)
    model.fit(*share(*data()), verbose=0)
    model = make()
    model.compile("sgd", Squares())
    try:
        model.fit(*share(*data()), verbose=0)
    except KerasRingError as error:
        return type(error).__name__
    return ""


def traces():
    """Returns how often steps were traced, and whether input is counted."""
    init()
    x, y = share(*data())
    traced = []

    class Counting(keras.losses.Loss):
        def __call__(self, y_true, y_pred, sample_weight=None):
            traced.append(True)
            return Squares()(y_true, y_pred)

    model = make()
    model.compile(kr.DistributedOptimizer("adam"), Counting())
    kr.broadcast_model(model)
    before = kr.metrics()
    model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    after = kr.metrics()
    counted = {
        name: after[name] - before[name] for name in ("samples", "fit_steps")
    }
    first = len(traced)
    model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    return first, len(traced), counted, len(x)


def bfloat16():
    """Mixed precision; returns whether ranks are equal at the end."""
    init()
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(2)]
    )
    model.compile(kr.DistributedOptimizer("adam"), "mse")
    kr.broadcast_model(model)
    x, y = (each.astype("float32") for each in share(*data()))
    history = model.fit(x, y, batch_size=8, epochs=6, verbose=0).history
    by_rank = kr.allgather_object(model.get_weights())
    same = all(
        np.array_equal(a, b)
        for weights in by_rank
        for a, b in zip(weights, by_rank[0], strict=True)
    )
    return same, history["loss"][-1] < history["loss"][0]


def overflow():
    """An overflow on one rank is one on all; returns weights and scales."""
    rank, _ = init()
    x, y = share(*data())
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=2.0
    )
    model = make()
    model.compile(kr.DistributedOptimizer(optimizer), Squares())
    kr.broadcast_model(model)
    before = model.get_weights()
    if rank == 1:
        y = np.full_like(y, np.inf)
    model.train_on_batch(x, y)
    moved = any(
        (a != b).any() for a, b in zip(before, model.get_weights(), strict=True)
    )
    return moved, float(model.optimizer.dynamic_scale)
