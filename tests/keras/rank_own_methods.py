"""Optimizers whose classes change gradients, each compared with one process."""

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

_ROWS = 12
_RATE = 0.1


def _normalized(gradients):
    return [g / (1e-3 + tf.norm(g)) for g in gradients]


class ByApply(keras.optimizers.SGD):
    def apply(self, grads, trainable_variables=None):
        return super().apply(_normalized(grads), trainable_variables)


class ByApplyGradients(keras.optimizers.SGD):
    def apply_gradients(self, grads_and_vars):
        gradients, variables = zip(*grads_and_vars, strict=True)
        changed = zip(_normalized(gradients), variables, strict=True)
        return super().apply_gradients(changed)


class SkipsBadSteps(keras.optimizers.SGD):
    def apply_gradients(self, grads_and_vars):
        pairs = list(grads_and_vars)
        finite = tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(g)) for g, _ in pairs]
        )
        return super().apply_gradients(
            [(tf.where(finite, g, tf.zeros_like(g)), v) for g, v in pairs]
        )


_CLASSES = {"apply": ByApply, "apply_gradients": ByApplyGradients}


def _model():
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )


def _data():
    x = np.random.default_rng(3).normal(size=(_ROWS, 3)).astype("float32")
    return x, x.sum(1, keepdims=True)


def _alone(model, passes):
    """Trains as one process does, on the rows that ranks have in each step."""
    x, y = _data()
    variables = model.trainable_variables
    steps = np.split(np.arange(_ROWS), 2)
    sums = [0.0] * len(variables)
    for number, rows in enumerate([*steps, *steps]):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[rows]) - y[rows]) ** 2)
        changed = _normalized(tape.gradient(loss, variables))
        sums = [s + g / passes for s, g in zip(sums, changed, strict=True)]
        if (number + 1) % passes == 0:
            for variable, gradient in zip(variables, sums, strict=True):
                variable.assign_sub(_RATE * gradient)
            sums = [0.0] * len(variables)


def _fit(optimizer, settings):
    x, y = _data()
    model = _model()
    model.compile(optimizer, "mse", **settings)
    size = _ROWS // 2 // kr.size()
    rows = np.arange(_ROWS).reshape(2, kr.size(), size)[:, kr.rank()].ravel()
    model.fit(
        x[rows], y[rows], batch_size=size, epochs=2, shuffle=False, verbose=0
    )
    return model


def own_methods(method, passes, settings):
    """Returns by how much the weights differ from those of one process."""
    optimizer = kr.DistributedOptimizer(
        _CLASSES[method](_RATE),
        backward_passes_per_step=passes,
        average_aggregated_gradients=True,
    )
    model = _fit(optimizer, dict(settings))
    alone = _model()
    _alone(alone, passes)
    return max(
        float(np.abs(ours - theirs).max())
        for ours, theirs in zip(
            model.get_weights(), alone.get_weights(), strict=True
        )
    )


def bad_steps_of_one_rank():
    """Returns the weights where one rank's gradients are not finite, once."""
    optimizer = kr.DistributedOptimizer(SkipsBadSteps(_RATE))
    model = _model()
    variables = model.trainable_variables
    before = model.get_weights()
    changed = []
    for number in range(3):
        bad = number == 1 and kr.rank() == 1
        gradients = [
            tf.fill(v.shape, float("nan") if bad else 1.0) for v in variables
        ]
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        after = model.get_weights()
        changed.append(
            any((a != b).any() for a, b in zip(before, after, strict=True))
        )
        before = after
    return changed, [each.tolist() for each in before]
