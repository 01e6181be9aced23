"""Steps that were traced with ranks that are lost later, against NumPy.

    keras-ring run --elastic -np 4 -- \
        python -m tests.multiprocess.elastic.sizes fit 0

Rank 0 kills itself after some steps. Each rank prints the largest relative
errors of what it has computed in all steps, before and after that.
"""

import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.optimizer import whole_batch, whole_rows
from tests.multiprocess.collectives import collective_model as model

RANKS = 4
STEPS = 6
_FIRST_WITHOUT = 3  # the first step without the victim


class Checks:
    """The largest errors of values, by their names."""

    def __init__(self, victim):
        self.errors = {}
        self._victim = victim

    def begin(self, step, was):
        """Kills the victim if it is time."""
        if step == _FIRST_WITHOUT and was == self._victim:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin_with_those_left(self, step, was):
        """Does the same where no rank is in the midst of a step.

        There it may compute with the rank and the size of either time.
        """
        if step == _FIRST_WITHOUT:
            kr.barrier()
            self.begin(step, was)
            kr.barrier()

    def ranks(self, step):
        """Returns the first ranks of those that take part in a step."""
        left = list(range(RANKS))
        if step >= _FIRST_WITHOUT:
            left.remove(self._victim)
        return left

    def check(self, name, found, wanted):
        found, wanted = np.asarray(found), np.asarray(wanted)
        error = np.inf
        if found.shape == wanted.shape:
            error = np.abs(found - wanted).max() / np.abs(wanted).max()
        self.errors[name] = max(self.errors.get(name, 0.0), error)


# --- A weighted loss ---


def _rows(was):
    draw = np.random.default_rng([1, was])
    x = draw.normal(size=(3 + 2 * was, 5))
    y = draw.normal(size=(3 + 2 * was, 1))
    return x, y, draw.uniform(0.1, 1 + was, size=3 + 2 * was)


class _Updates(keras.callbacks.Callback):
    """Compares each update with that of the whole batch."""

    def __init__(self, checks, was):
        super().__init__()
        self._checks = checks
        self._was = was
        self._step = 0

    def on_train_batch_begin(self, batch, logs=None):
        self._checks.begin(self._step, self._was)
        self._before = self.model.get_weights()[0]

    def on_train_batch_end(self, batch, logs=None):
        ranks = self._checks.ranks(self._step)
        x, y, weight = map(np.concatenate, zip(*map(_rows, ranks), strict=True))
        residue = (x @ self._before - y) * weight[:, np.newaxis]
        gradient = 2 * x.T @ residue / weight.sum()
        update = self.model.get_weights()[0] - self._before
        self._checks.check("weighted", update, -0.1 * gradient)
        self._step += 1


def _fit(checks, was):
    layer = keras.layers.Dense(1, use_bias=False, dtype="float64")
    trained = keras.Sequential([keras.Input((5,), dtype="float64"), layer])
    kr.broadcast_variables(trained.variables, 0)
    trained.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1), weighted=True),
        keras.losses.MeanSquaredError("mean_with_sample_weight"),
        jit_compile=False,
    )
    x, y, weight = _rows(was)
    trained.fit(
        x,
        y,
        sample_weight=weight,
        batch_size=len(x),
        epochs=STEPS,
        verbose=0,
        callbacks=[_Updates(checks, was)],
    )


# --- Collectives in the forward pass ---


def _input(was):
    return np.random.default_rng([2, was]).normal(size=(12, 2))


def _cotangents(was, rows):
    """A number for each element of a result, of any number of rows."""
    return np.sin(np.arange(2.0 * rows) + 5 * was).reshape(rows, 2)


def _own_rows(was):
    return 1 + 2 * was


_CALLS = {
    "Average": lambda x, was: kr.allreduce(x, kr.Average, name="average"),
    "Product": lambda x, was: kr.allreduce(x, kr.Product, name="product"),
    "Adasum": lambda x, was: kr.allreduce(x, kr.Adasum, name="adasum"),
    "allgather": lambda x, was: kr.allgather(x[: _own_rows(was)], name="all"),
    "reducescatter": lambda x, was: kr.reducescatter(x[:5], name="scatter"),
    "broadcast": lambda x, was: kr.broadcast(x, 1, name="broadcast"),
    "alltoall": lambda x, was: kr.alltoall(x, name="exchanged"),
}


def _through_adasum(ranks, own, cotangent):
    """By steps along the imaginary axis, from which nothing is subtracted."""
    step = 1e-100
    vectors = np.stack([_input(was) for was in ranks]).astype(complex)
    gradient = np.zeros_like(cotangent)
    for index in np.ndindex(gradient.shape):
        moved = vectors.copy()
        moved[own][index] += 1j * step
        result, _ = model.adasum_of(list(moved))
        gradient[index] = np.sum(result.imag * cotangent) / step
    return gradient


def _gradient(name, ranks, own):
    """Returns the gradient of the sum of all losses by the input of a rank."""
    size = len(ranks)
    total = sum(_cotangents(was, 12) for was in ranks)
    if name == "Average":
        return total / size
    if name == "Product":
        others = [_input(was) for was in ranks if was != ranks[own]]
        return total * np.prod(others, axis=0)
    if name == "Adasum":
        return _through_adasum(ranks, own, total)
    if name == "broadcast":
        return total * (own == 1)
    gradient = np.zeros((12, 2))
    if name == "allgather":
        rows = [_own_rows(was) for was in ranks]
        all_rows = sum(_cotangents(was, sum(rows)) for was in ranks)
        begin = sum(rows[:own])
        gradient[: rows[own]] = all_rows[begin : begin + rows[own]]
    elif name == "reducescatter":
        counts = [5 // size + (index < 5 % size) for index in range(size)]
        parts = [
            _cotangents(was, rows)
            for was, rows in zip(ranks, counts, strict=True)
        ]
        gradient[:5] = np.concatenate(parts) / size
    else:
        rows = 12 // size
        parts = [_cotangents(was, 12) for was in ranks]
        gradient[:] = np.concatenate(
            [part[own * rows : (own + 1) * rows] for part in parts]
        )
    return gradient


def _tape(checks, was):
    weights = {
        name: keras.Variable(np.ones((12, 2)), dtype="float64", name=name)
        for name in [*_CALLS, "local"]
    }
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build([*weights.values()])
    own_input = tf.constant(_input(was))

    def cotangents(result):
        count = tf.cast(tf.size(result), tf.float64)
        angles = tf.range(count, dtype=tf.float64) + 5.0 * was
        return tf.reshape(tf.sin(angles), tf.shape(result))

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(own_input * weights["local"])
            for name, call in _CALLS.items():
                result = call(own_input * weights[name], was)
                loss += tf.reduce_sum(result * cotangents(result))
        tape = kr.DistributedGradientTape(tape)
        tape.register_local_source(weights["local"])
        gradients = tape.gradient(loss, [*weights.values()])
        optimizer.apply(gradients, [*weights.values()])

    for step in range(STEPS):
        checks.begin_with_those_left(step, was)
        for weight in weights.values():
            weight.assign(np.ones((12, 2)))
        train()
        ranks = checks.ranks(step)
        for name in _CALLS:
            wanted = [
                _input(each) * _gradient(name, ranks, index)
                for index, each in enumerate(ranks)
            ]
            update = 1 - weights[name].numpy()
            checks.check(name, update, sum(wanted) / len(ranks))
        checks.check(
            "local", 1 - weights["local"].numpy(), _input(was) / len(ranks)
        )


# --- Parts of a batch ---


def _parts(checks, was):
    @tf.function
    def divided(batch, own_batch):
        step = whole_batch.PartStep(batch, kr.global_process_set)
        part = step.rows_of(batch)
        own = whole_batch.OwnBatchStep(own_batch, kr.global_process_set)
        with tf.GradientTape() as tape:
            tape.watch(own_batch)
            rows = whole_rows.of_all_ranks(own, own_batch)
            loss = tf.reduce_sum(rows * tf.cast(tf.size(rows), tf.float64))
        gradient = tape.gradient(loss, own_batch)
        return part, step.share(), step.factor(), own.factor(), gradient

    for index in range(STEPS):
        checks.begin_with_those_left(index, was)
        for rows in (12, 13):
            batch = np.random.default_rng(rows).normal(size=(rows, 2))
            own_rows = _own_rows(was)
            own_batch = tf.ones([own_rows, 2], tf.float64)
            part, share, factor, own_factor, gradient = divided(
                tf.constant(batch), own_batch
            )
            ranks = checks.ranks(index)
            size, rank = len(ranks), ranks.index(was)
            wanted = batch[rows * rank // size : rows * (rank + 1) // size]
            of_rank = len(wanted) / rows
            checks.check("rows", part, wanted)
            checks.check("share", share, of_rank)
            checks.check("factor", factor, size * of_rank)
            everyone = sum(map(_own_rows, ranks))
            own_share = own_rows / everyone
            checks.check("own-factor", own_factor, size * own_share)
            checks.check(
                "all-rows",
                gradient,
                np.full([own_rows, 2], 2 * everyone / own_share),
            )


def main():
    """Runs the steps, and prints the errors."""
    how, victim = sys.argv[1], int(sys.argv[2])
    kr.init()
    was = kr.rank()
    checks = Checks(victim)
    {"fit": _fit, "tape": _tape, "parts": _parts}[how](checks, was)
    errors = ", ".join(
        f"{name} {error:.1e}" for name, error in checks.errors.items()
    )
    print(f"was {was}: rank {kr.rank()} of {kr.size()}; {errors}", flush=True)
    kr.shutdown()


if __name__ == "__main__":
    main()
