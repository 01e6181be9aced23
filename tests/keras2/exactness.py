"""Metrics, callbacks and data with Keras 2, for `rank_keras2.py`."""

import copy
from pathlib import Path

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.model import metric_state
from tests.keras2.models import dense, make_numbers

keras = tf.keras

PART = 0.7  # of the data is rank 0's


def part_of_rank(num):
    """Returns rows of this rank: unequal parts."""
    if kr.size() == 1:
        return slice(0, num)
    bound = int(PART * num)
    return slice(0, bound) if kr.rank() == 0 else slice(bound, num)


class LargeErrors(keras.metrics.Metric):
    """A user's metric: the mean of the errors above 0.5."""

    def __init__(self):
        super().__init__(name="large_errors")
        self.count = self.add_weight("count", initializer="zeros")
        self.total = self.add_weight("total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        error = tf.abs(y_true - y_pred)
        large = tf.cast(error > 0.5, error.dtype)
        self.count.assign_add(tf.reduce_sum(large))
        self.total.assign_add(tf.reduce_sum(error * large))

    def result(self):
        return tf.math.divide_no_nan(self.total, self.count)


def shipped_metrics():
    """Returns what makes each metric, by the kind of its arguments."""
    m = keras.metrics
    return {
        "values": [
            *(m.CosineSimilarity, m.LogCoshError, m.MeanAbsoluteError),
            *(m.MeanAbsolutePercentageError, m.MeanSquaredError),
            *(m.MeanSquaredLogarithmicError, m.RootMeanSquaredError),
            *(m.Poisson, m.KLDivergence, m.R2Score, LargeErrors),
            lambda: m.MeanRelativeError(normalizer=[1.0, 2.0, 3.0]),
            lambda: m.MeanMetricWrapper(lambda y, p: tf.abs(y - p)[:, 0]),
        ],
        "binary": [
            *(m.AUC, m.BinaryAccuracy, m.BinaryCrossentropy, m.FalseNegatives),
            *(m.FalsePositives, m.TrueNegatives, m.TruePositives),
            *(m.Hinge, m.SquaredHinge, m.CategoricalHinge),
            lambda: m.AUC(curve="PR", multi_label=True, num_labels=3),
            lambda: m.Precision(thresholds=[0.2, 0.5, 0.7]),
            lambda: m.Recall(top_k=1),
            lambda: m.SensitivityAtSpecificity(0.4),
            lambda: m.SpecificityAtSensitivity(0.4),
            lambda: m.PrecisionAtRecall(0.4),
            lambda: m.RecallAtPrecision(0.4),
            lambda: m.F1Score(average="macro", threshold=0.5),
            lambda: m.FBetaScore(average=None, beta=2.0, threshold=0.5),
        ],
        "binary rows": [lambda: m.BinaryIoU([0, 1], 0.4)],
        "classes": [m.Accuracy, lambda: m.MeanIoU(4), lambda: m.IoU(4, [0, 2])],
        "one hot": [
            *(m.CategoricalAccuracy, m.CategoricalCrossentropy),
            *(m.TopKCategoricalAccuracy, lambda: m.OneHotMeanIoU(3)),
            lambda: m.OneHotIoU(3, [1]),
        ],
        "sparse": [
            *(m.SparseCategoricalAccuracy, m.SparseCategoricalCrossentropy),
            lambda: m.SparseTopKCategoricalAccuracy(2),
        ],
        "one": [m.Mean, m.Sum],
        "tensor": [m.MeanTensor],
    }


def metric_arguments(kind, num):
    rng = np.random.default_rng(9)
    values = rng.uniform(0.05, 2.0, size=(num, 3)).astype("float32")
    scores = rng.dirichlet([1, 1, 1], size=num).astype("float32")
    classes = rng.integers(0, 3, size=num)
    return {
        "values": (values, values[::-1].copy()),
        "binary": (
            rng.integers(0, 2, size=(num, 3)).astype("float32"),
            scores,
        ),
        "binary rows": ((classes > 0).astype("float32"), scores[:, 0]),
        "classes": (classes, rng.integers(0, 3, size=num)),
        "one hot": (np.eye(3, dtype="float32")[classes], scores),
        "sparse": (classes, scores),
        "one": (values[:, 0],),
        "tensor": (values,),
    }[kind]


def every_metric(num=53):
    """Each metric on unequal parts, and on all of it by one process."""
    results, covered = {}, set()
    rows = part_of_rank(num)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, num).astype("float32")
    for kind, makes in shipped_metrics().items():
        arguments = metric_arguments(kind, num)
        for make, weighted in ((m, w) for m in makes for w in (False, True)):
            of_ranks, of_one = make(), make()
            covered.add(type(of_one).__name__)
            # A mean of tensors has one update for each.
            singly = kind == "tensor"
            for metric, part in ((of_ranks, rows), (of_one, slice(0, num))):
                for i in range(num)[part] if singly else [part]:
                    metric.update_state(
                        *(argument[i] for argument in arguments),
                        sample_weight=weights[i] if weighted else None,
                    )
            metric_state.combine(of_ranks.variables)
            results[f"{len(results)} {of_one.name} {weighted}"] = [
                np.asarray(metric.result(), "float64").tolist()
                for metric in (of_ranks, of_one)
            ]
    shipped = {
        found.__name__
        for found in vars(keras.metrics).values()
        if isinstance(found, type)
        and issubclass(found, keras.metrics.Metric)
        and found is not keras.metrics.Metric
    }
    return results, sorted(shipped - covered)


def decisions(directory, order):
    """Callbacks that decide by metrics, in one of several orders.

    Each step multiplies the distance of the one weight from 1 by `1 - 2 lr`:
    by -1.1, and once the rate was halved by -0.05, on any processor.
    """
    x = np.ones((24, 1))
    start = keras.initializers.Constant(2.5)
    model = keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(1, use_bias=False, kernel_initializer=start),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(1.05)),
        "mse",
        metrics=["mae"],
    )
    directory = Path(directory, f"decisions{order}")
    callbacks = [
        keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True),
        kr.callbacks.ModelCheckpoint(
            f"{directory}/{{epoch:02d}}.weights.h5",
            save_best_only=True,
            save_weights_only=True,
        ),
        keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1),
        keras.callbacks.TerminateOnNaN(),
        kr.callbacks.BroadcastGlobalVariablesCallback(),
        kr.callbacks.MetricAverageCallback(),
    ]
    if order == 1:
        callbacks.reverse()
    elif order == 2:
        callbacks = callbacks[3:] + callbacks[:3]
    history = model.fit(
        *kr.data.shard((x, x)),
        batch_size=4,
        epochs=25,
        shuffle=False,
        verbose=0,
        # What is best for one rank is not for the other.
        validation_data=(x, 2.0 * x if kr.rank() == 0 else 0.0 * x),
        callbacks=callbacks,
    ).history
    saved = sorted(path.name for path in directory.glob("*.h5"))
    kr.barrier()
    weights = [weight.tolist() for weight in model.get_weights()]
    rate = float(model.optimizer.learning_rate)
    return [float(v) for v in history["val_loss"]], saved, rate, weights


class OnLastRank(keras.callbacks.Callback):
    """Changes a weight on one rank only."""

    def on_epoch_end(self, epoch, logs=None):
        if kr.rank() == kr.size() - 1:
            kernel = self.model.get_layer("two").kernel
            kernel.assign_add(tf.ones_like(kernel))


def ends():
    """What makes ranks part, and what they say then."""
    found = {}
    x, y = make_numbers(32)
    for name, callbacks in (
        ("nan", [keras.callbacks.TerminateOnNaN()]),
        (
            "change",
            [OnLastRank(), kr.callbacks.BroadcastGlobalVariablesCallback()],
        ),
    ):
        model = dense()
        model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        mine, labels = kr.data.shard((x, y))
        if name == "nan" and kr.rank() == 1:
            mine = mine.copy()
            mine[5] = np.nan
        message = None
        try:
            model.fit(
                *(mine, labels),
                batch_size=4,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
        except kr.errors.ConsistencyError as error:
            message = str(error)
        found[name] = int(model.optimizer.iterations), message
    return found


def raw_loop(kind):
    """A loop whose tape does not reduce, nor its optimizer."""
    variable = tf.Variable([1.0], name="weight")
    make = keras.optimizers if kind == "new" else keras.optimizers.legacy
    optimizer = make.SGD(0.1)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable**2)
        gradients = tape.gradient(loss, [variable])
        optimizer.apply_gradients(zip(gradients, [variable], strict=True))

    try:
        if kind == "new":
            optimizer.build([variable])
        step()
    except kr.errors.LocalUpdateError as error:
        return str(error), variable.numpy().tolist()


def reduced_once(kind):
    """What would reduce twice, not at all, or with other settings."""
    make = keras.optimizers if kind == "new" else keras.optimizers.legacy
    found = {}

    def update(name, optimizer, wrap=lambda tape: tape, weight=None):
        """One step with a gradient of 1 on rank 0 and of 2 on rank 1."""
        variable = tf.Variable([0.0], name="weight")
        if kind == "new":
            optimizer.build([variable])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * (kr.rank() + 1.0)
        settings = {} if weight is None else {"weight": weight}
        gradients = wrap(tape).gradient(loss, [variable], **settings)
        try:
            optimizer.apply_gradients(zip(gradients, [variable], strict=True))
            found[name] = variable.numpy().tolist()
        except ValueError as error:
            found[name] = str(error)

    def wrapped(**settings):
        return kr.DistributedOptimizer(make.SGD(1.0), **settings)

    update("both", wrapped(), kr.DistributedGradientTape)
    optimizer = wrapped(op=kr.Sum)
    assert kr.DistributedOptimizer(optimizer, op=kr.Sum) is optimizer
    try:
        kr.DistributedOptimizer(optimizer)
    except ValueError as error:
        found["other settings"] = str(error)
    update("again", optimizer)
    # Two of them, whose only member is one rank.
    alone = [kr.add_process_set([rank]) for rank in range(2)]
    update("not a member", wrapped(process_set=alone[0]))
    update(
        "tape of others",
        make.SGD(1.0),
        lambda tape: kr.DistributedGradientTape(tape, process_set=alone[0]),
    )
    for each in alone:
        kr.remove_process_set(each)
    # 1 and 3 rows of 4.
    update(
        "weight",
        make.SGD(1.0),
        kr.DistributedGradientTape,
        weight=tf.constant(1.0 + 2.0 * kr.rank()),
    )
    return found


class Batches(keras.utils.Sequence):
    """Batches, by number."""

    def __init__(self, x, y, batch_size):
        self.x, self.y, self.batch_size = x, y, batch_size

    def __len__(self):
        return len(self.x) // self.batch_size

    def __getitem__(self, index):
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return self.x[rows], self.y[rows]


SHARDS = ("validation_split", "Sequence", "generator", "tf.data")


def shards(kind):
    """Trains on what `kr.data.shard` makes of a kind of data."""
    num, batch = 96, 24
    mine = batch // kr.size()
    x, y = make_numbers(num)
    model = dense()
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    batches = Batches(x, y, mine)
    fit = {"epochs": 2, "shuffle": False, "verbose": 0}
    if kind == "validation_split":
        data = kr.data.shard((x, y))
        fit.update(batch_size=mine, validation_split=0.25)
    elif kind == "Sequence":
        data = [kr.data.shard(batches)]
    elif kind == "generator":
        endless = (batches[i % len(batches)] for i in range(10**9))
        data = [kr.data.shard(endless)]
        fit.update(steps_per_epoch=num // batch)
    else:
        dataset = tf.data.Dataset.from_tensor_slices((x, y))
        data = [kr.data.shard(dataset).batch(mine)]
    history = model.fit(
        *data, **fit, callbacks=[kr.callbacks.MetricAverageCallback()]
    ).history
    losses = {key: [float(v) for v in vs] for key, vs in history.items()}
    return losses, [weight.tolist() for weight in model.get_weights()]


class Recorder(keras.Model):
    """Records which batches it is given."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def train_step(self, data):
        self.seen.append(int(data[0][0, 0]))
        return {"loss": 0.0}


def shuffled():
    """The numbers of this rank's batches, in three epochs of two fits."""
    numbers = np.arange(16.0).repeat(2)[:, np.newaxis]
    data = kr.data.shard(Batches(numbers, numbers, 2), shuffle=True, seed=3)
    model = Recorder()
    model.compile(run_eagerly=True)
    for epochs in (2, 1):
        model.fit(data, epochs=epochs, shuffle=False, verbose=0)
    count = len(data)
    return [
        model.seen[begin : begin + count]
        for begin in range(0, len(model.seen), count)
    ]


def exported(directory):
    """SavedModels, which rank 0 writes."""
    model = dense()
    model.compile(kr.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    x, y = make_numbers(32)
    model.fit(*kr.data.shard((x, y)), verbose=0)
    if kr.rank() == 0:
        model.export(f"{directory}/exported")
        model.save(f"{directory}/saved", save_format="tf")
    kr.barrier()
    expected = model.predict(x, verbose=0)
    module = tf.saved_model.load(f"{directory}/exported")
    served = module.serve(tf.constant(x, tf.float32))
    plain = keras.models.load_model(f"{directory}/saved")
    loaded = kr.load_model(f"{directory}/saved")
    again = [each.predict(x, verbose=0) for each in (plain, loaded)]
    close = [
        bool(np.allclose(found, expected, 1e-5, 1e-6))
        for found in (served, *again)
    ]
    # Keras 2 itself restores no optimizer from this kind of file.
    loaded.fit(*kr.data.shard((x, y)), verbose=0)
    return close, [weight.tolist() for weight in loaded.get_weights()]


class Weights(keras.callbacks.Callback):
    """Notes the first weight after each step."""

    def __init__(self, values):
        super().__init__()
        self.values = values

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(float(self.model.get_weights()[0][0, 0]))


def momentum_correction(kind):
    """A gradient of 1, and a learning rate that is halved; goes on later."""
    make = keras.optimizers if kind == "new" else keras.optimizers.legacy
    found = {}
    for corrected in (True, False):
        model = keras.Sequential(
            [
                keras.Input((1,)),
                keras.layers.Dense(1, use_bias=False, name="one"),
            ]
        )
        model.set_weights([np.zeros((1, 1))])
        model.compile(
            kr.DistributedOptimizer(make.SGD(0.1, momentum=0.5)),
            lambda y_true, y_pred: y_pred,
        )
        values = []
        model.fit(
            *(np.ones((2, 1)), np.ones((2, 1))),
            batch_size=1,
            # The first epoch was in another run.
            initial_epoch=1,
            epochs=3,
            verbose=0,
            callbacks=[
                kr.callbacks.LearningRateScheduleCallback(
                    *(0.1, lambda epoch: 0.5**epoch),
                    momentum_correction=corrected,
                ),
                Weights(values),
            ],
        )
        found[corrected] = values
    return found


def evaluate():
    """`evaluate` on unequal parts, and on all of it by one process."""
    num = 53
    x, y = make_numbers(num)
    model = dense()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        "mse",
        metrics=["mae", LargeErrors()],
        weighted_metrics=[keras.metrics.RootMeanSquaredError()],
    )
    weights = np.random.default_rng(2).uniform(0.5, 2.0, num)
    rows = part_of_rank(num)
    found = model.evaluate(
        *(x[rows], y[rows]),
        sample_weight=weights[rows],
        batch_size=5,
        callbacks=[kr.callbacks.MetricAverageCallback()],
        return_dict=True,
        verbose=0,
    )
    whole = model.evaluate(
        x, y, sample_weight=weights, batch_size=5, return_dict=True, verbose=0
    )
    return [
        {name: float(value) for name, value in each.items()}
        for each in (found, whole)
    ]


def every_optimizer():
    """Each optimizer and a copy of it, and a plain one with the average."""
    kinds = {"": keras.optimizers, "legacy ": keras.optimizers.legacy}
    found = {}
    for kind, module in kinds.items():
        for name, optimizer_class in sorted(vars(module).items()):
            if not (
                isinstance(optimizer_class, type)
                and issubclass(optimizer_class, module.Optimizer)
                and optimizer_class is not module.Optimizer
            ):
                continue
            plain = optimizer_class(0.1)
            ours = kr.DistributedOptimizer(optimizer_class(0.1))
            variables = [tf.Variable([1.0, 2.0]) for _ in range(3)]
            for step in range(3):
                gradient = tf.constant([0.5, -0.25]) * (1.0 + step)
                with kr.allow_local_updates():
                    plain.apply_gradients([(1.5 * gradient, variables[0])])
                mine = gradient * (1.0 + kr.rank())
                ours.apply_gradients([(mine, variables[1])])
                if step == 0:
                    copied = copy.deepcopy(ours)
                    variables[2].assign(variables[1])
                else:
                    copied.apply_gradients([(mine, variables[2])])
            found[kind + name] = [v.numpy().tolist() for v in variables]
    return found
