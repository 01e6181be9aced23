"""What ranks do in `test_exactness_on_ranks.py`. Each returns plain values."""

from pathlib import Path

import keras
import numpy as np
import pandas
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.agreement import looks
from keras_ring.keras.model import metric_state
from tests.harness.set_known import set_known
from tests.keras.rank_training import (
    digest,
    make_classifier,
    make_data,
    sparse_loss,
    start,
)


def part_of_rank(num):
    """Returns rows of this rank: unequal parts, none of them empty."""
    bounds = {1: [0, 1], 2: [0, 0.7, 1], 3: [0, 0.2, 0.85, 1]}[kr.size()]
    begin, end = bounds[kr.rank() : kr.rank() + 2]
    return slice(int(begin * num), int(end * num))


class LargestError(keras.metrics.Metric):
    """A user's metric: how many errors are above 0.5, and the mean of those."""

    def __init__(self, name="largest_error"):
        super().__init__(name=name)
        self.count = self.add_variable((), "zeros", name="count")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        error = keras.ops.abs(y_true - y_pred)
        large = keras.ops.cast(error > 0.5, "float32")
        self.count.assign_add(keras.ops.sum(large))
        self.total.assign_add(keras.ops.sum(error * large))

    def result(self):
        return keras.ops.divide_no_nan(self.total, self.count)


def shipped_metrics():
    """Returns each metric of Keras: (made by, kind of its arguments)."""
    m = keras.metrics
    kinds = {
        "values": [
            *(m.CosineSimilarity, m.LogCoshError, m.MeanAbsoluteError),
            *(m.MeanAbsolutePercentageError, m.MeanSquaredError),
            *(m.MeanSquaredLogarithmicError, m.PearsonCorrelation),
            *(m.ConcordanceCorrelation, m.RootMeanSquaredError, m.R2Score),
            *(m.Poisson, m.KLDivergence, LargestError),
        ],
        "binary": [
            *(m.AUC, m.BinaryAccuracy, m.BinaryCrossentropy, m.FalseNegatives),
            *(m.FalsePositives, m.TrueNegatives, m.TruePositives),
            *(m.Hinge, m.SquaredHinge, m.CategoricalHinge),
            lambda: m.Precision(thresholds=[0.2, 0.5, 0.7]),
            lambda: m.Recall(top_k=1),
            lambda: m.AUC(curve="PR", multi_label=True, num_labels=3),
            lambda: m.SensitivityAtSpecificity(0.4),
            lambda: m.SpecificityAtSensitivity(0.4),
            lambda: m.PrecisionAtRecall(0.4),
            lambda: m.RecallAtPrecision(0.4),
            lambda: m.F1Score(average="macro", threshold=0.5),
            lambda: m.FBetaScore(average=None, beta=2.0, threshold=0.5),
        ],
        "binary rows": [m.BinaryIoU],
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
        "one": [
            *(m.Mean, m.Sum),
        ],
        "wrapped": [
            lambda: m.MeanMetricWrapper(
                lambda y_true, y_pred: keras.ops.abs(y_true - y_pred)[:, 0]
            )
        ],
    }
    return [(make, kind) for kind, makes in kinds.items() for make in makes]


def metric_arguments(kind, num):
    rng = np.random.default_rng(9)
    values = rng.uniform(0.05, 2.0, size=(num, 3)).astype("float32")
    probabilities = rng.dirichlet([1, 1, 1], size=num).astype("float32")
    classes = rng.integers(0, 3, size=num)
    return {
        "values": (values, values[::-1].copy()),
        "wrapped": (values, values[::-1].copy()),
        "binary": (
            rng.integers(0, 2, size=(num, 3)).astype("float32"),
            probabilities,
        ),
        "binary rows": (classes > 0, probabilities[:, 0]),
        "classes": (classes, rng.integers(0, 3, size=num)),
        "one hot": (np.eye(3, dtype="float32")[classes], probabilities),
        "sparse": (classes, probabilities),
        "one": (values[:, 0],),
    }[kind]


def every_metric(num=53):
    """Each metric on unequal parts, and on all of it by one process."""
    start()
    results = {}
    covered = set()
    rows = part_of_rank(num)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, num).astype("float32")
    for make, kind in shipped_metrics():
        arguments = metric_arguments(kind, num)
        for weighted in (False, True):
            of_ranks, of_one = make(), make()
            covered.add(type(of_one).__name__)
            name = f"{len(results)} {of_one.name} {weighted}"
            of_ranks.update_state(
                *(argument[rows] for argument in arguments),
                sample_weight=weights[rows] if weighted else None,
            )
            of_one.update_state(
                *arguments, sample_weight=weights if weighted else None
            )
            metric_state.combine(of_ranks.variables)
            results[name] = (
                np.asarray(of_ranks.result(), "float64").tolist(),
                np.asarray(of_one.result(), "float64").tolist(),
            )
    return results, covered


def two_outputs():
    """Compiled metrics of a model with two outputs, in `fit` and `evaluate`."""
    start()
    inputs = keras.Input((10,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    outputs = {
        "binary": keras.layers.Dense(1, activation="sigmoid", name="binary")(
            hidden
        ),
        "classes": keras.layers.Dense(3, activation="softmax", name="classes")(
            hidden
        ),
    }
    model = keras.Model(inputs, outputs)
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.05)),
        {
            "binary": "binary_crossentropy",
            "classes": "sparse_categorical_crossentropy",
        },
        metrics={
            "binary": [
                keras.metrics.AUC(name="auc"),
                keras.metrics.Precision([0.3, 0.5], name="precision"),
                LargestError(),
            ],
            "classes": [keras.metrics.MeanIoU(3, sparse_y_pred=False)],
        },
        weighted_metrics={"binary": ["mae"], "classes": ["accuracy"]},
    )
    # Parts of whole batches: Keras tracks the loss of each output, of several,
    # by the mean over batches, however large they are.
    num = 80
    x, y = make_data(num, classes=3)
    targets = {"binary": (y > 0).astype("float32")[:, None], "classes": y}
    rng = np.random.default_rng(4)
    weights = {name: rng.uniform(0.1, 3.0, num) for name in targets}
    rows = part_of_rank(num)
    mine = (
        x[rows],
        {name: target[rows] for name, target in targets.items()},
        {name: weight[rows] for name, weight in weights.items()},
    )
    train = kr.data.shard((x, targets, weights))
    history = model.fit(
        train[0],
        train[1],
        sample_weight=train[2],
        epochs=2,
        batch_size=4,
        verbose=0,
        validation_data=mine,
        callbacks=[kr.callbacks.MetricAverageCallback()],
    )
    evaluated = model.evaluate(
        mine[0],
        mine[1],
        sample_weight=mine[2],
        batch_size=4,
        verbose=0,
        return_dict=True,
        callbacks=[kr.callbacks.MetricAverageCallback()],
    )
    whole = model.evaluate(
        x,
        targets,
        sample_weight=weights,
        batch_size=4,
        verbose=0,
        return_dict=True,
    )
    plain = {key: np.asarray(value).tolist() for key, value in whole.items()}
    return {
        "history": {
            key: np.asarray(value).tolist()
            for key, value in history.history.items()
        },
        "evaluated": {
            key: np.asarray(value).tolist() for key, value in evaluated.items()
        },
        "whole": plain,
    }


def normalization(jit_compile):
    """Trains a model with two of the layers; all ranks make one batch."""
    start()
    rng = np.random.default_rng(5)
    batch = 12
    x = rng.normal(3.0, 2.0, size=(12 * batch, 6, 6, 2)).astype("float32")
    y = (x.mean(axis=(1, 2, 3)) > 3.0).astype("float32")
    results = {}
    # Roundings of bfloat16 depend on the processor and on the size of a batch,
    # and what comes of them doubles every two steps.
    for name, policy, steps in (
        ("one", "float32", 12),
        ("half", "mixed_bfloat16", 4),
    ):
        keras.config.set_dtype_policy(policy)
        keras.utils.set_random_seed(11)
        model = keras.Sequential(
            [
                keras.Input((6, 6, 2)),
                keras.layers.Conv2D(4, 3, use_bias=False),
                kr.SyncBatchNormalization(momentum=0.8),
                keras.layers.ReLU(),
                keras.layers.Flatten(),
                keras.layers.Dense(5),
                kr.SyncBatchNormalization(momentum=0.8),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )
        model.compile(
            kr.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)),
            keras.losses.BinaryCrossentropy(from_logits=True),
            jit_compile=jit_compile,
        )
        mine = kr.data.shard((x[: steps * batch], y[: steps * batch]))
        # As often on a busy machine as on another one.
        set_known(looks, "_ALLOWANCE", 1e6)
        before = kr.metrics()["entries"]
        model.fit(
            *mine,
            batch_size=batch // kr.size(),
            shuffle=False,
            verbose=0,
        )
        # Files, paths and initial values are compared once, and what is
        # trained before steps 1, 2, 4 and so on.
        compared = (3 + steps.bit_length()) * (kr.size() > 1)
        entries = kr.metrics()["entries"] - before - compared
        before = kr.metrics()["entries"]
        model.predict(x[:4], verbose=0)
        model.layers[1].trainable = False
        model.layers[1](x[:2, :4, :4, :1].repeat(4, 3), training=True)
        results[name] = {
            "weights": model.get_weights(),
            "digest": digest(model.weights),
            "dtypes": sorted({w.dtype for w in model.weights}),
            # In a step: 9 gradients, and one each way for two layers.
            "entries": entries / steps,
            "entries of inference": kr.metrics()["entries"] - before,
        }
    keras.config.set_dtype_policy("float32")
    return results


def moments(masked, policy="float32"):
    """One layer, on unequal parts; its results and gradients, gathered."""
    start()
    keras.config.set_dtype_policy(policy)
    num = 20
    rng = np.random.default_rng(6)
    # Far from 0, where a variance from plain sums would be lost.
    center = 1000.0 if policy == "float32" else 1.0
    x = rng.normal(center, 0.5, size=(num, 5, 3)).astype("float32")
    factors = rng.normal(size=x.shape).astype("float32")
    mask = rng.uniform(size=x.shape[:2]) < 0.6 if masked else None
    rows = part_of_rank(num)
    # Of 20 rows, on 3 ranks: 4, 13 and 3.
    layer = kr.SyncBatchNormalization(name="bn", epsilon=1e-5)
    layer.build(x.shape)
    mine = tf.constant(x[rows])
    before = kr.metrics()["entries"]
    with tf.GradientTape() as tape:
        tape.watch(mine)
        y = layer(
            mine,
            training=True,
            mask=None if mask is None else tf.constant(mask[rows]),
        )
        loss = tf.reduce_sum(tf.cast(y, tf.float32) * factors[rows])
    between = kr.metrics()["entries"]
    gradient = tape.gradient(loss, mine)
    after = kr.metrics()["entries"]
    keras.config.set_dtype_policy("float32")
    return {
        "y": kr.allgather(tf.cast(y, tf.float32), name="y").numpy(),
        "gradient": kr.allgather(gradient, name="dy").numpy(),
        "moving": [w.numpy() for w in layer.non_trainable_weights],
        "entries": (between - before, after - between),
    }


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y, batch_size):
        super().__init__(workers=1)
        self.x, self.y, self.batch_size = x, y, batch_size
        self.read = []

    def __len__(self):
        return -(-len(self.x) // self.batch_size)

    def __getitem__(self, index):
        self.read.append(index)
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return self.x[rows], self.y[rows]


DATA_KINDS = [
    "validation_split",
    "class_weight",
    "sample_weight",
    "pandas",
    "PyDataset",
    "generator",
    "tf.data",
]


def fit_on_shards():
    """Trains on what `kr.data.shard` makes of each kind of data."""
    start()
    results = {}
    num, batch = 96, 24
    mine = batch // kr.size()
    x, y = make_data(num)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, num).astype("float32")
    for kind in DATA_KINDS:
        keras.utils.set_random_seed(11)
        model = make_classifier()
        model.compile(
            kr.DistributedOptimizer(keras.optimizers.SGD(0.1)),
            sparse_loss(),
            metrics=["accuracy"],
        )
        fit = {
            "epochs": 2,
            "shuffle": False,
            "verbose": 0,
            "callbacks": [
                kr.callbacks.BroadcastGlobalVariablesCallback(),
                kr.callbacks.MetricAverageCallback(),
            ],
        }
        if kind == "validation_split":
            arguments = kr.data.shard((x, y))
            fit.update(batch_size=mine, validation_split=0.25)
        elif kind == "class_weight":
            arguments = kr.data.shard((x, y))
            fit.update(
                batch_size=mine, class_weight={0: 1.0, 1: 3.0, 2: 0.5, 3: 0.1}
            )
        elif kind == "sample_weight":
            *arguments, weight = kr.data.shard((x, y, weights))
            fit.update(batch_size=mine, sample_weight=weight)
        elif kind == "pandas":
            frame = pandas.DataFrame(x, index=[f"row {i}" for i in range(num)])
            arguments = kr.data.shard((frame, pandas.Series(y)))
            fit.update(batch_size=mine)
        elif kind == "PyDataset":
            arguments = [kr.data.shard(Batches(x, y, mine))]
        elif kind == "generator":
            batches = Batches(x, y, mine)
            endless = (batches[i % len(batches)] for i in range(10**9))
            arguments = [kr.data.shard(endless)]
            fit.update(steps_per_epoch=num // batch)
        else:
            dataset = tf.data.Dataset.from_tensor_slices((x, y))
            arguments = [kr.data.shard(dataset).batch(mine)]
        history = model.fit(*arguments, **fit)
        results[kind] = history.history, model.get_weights()
    return results


def unequal_ends():
    """Odd numbers of elements and batches; every way ends, with no hang."""
    start()
    results = {}
    x, y = make_data(7 * 4 + 1)
    for uneven in ("pad", "drop"):
        for kind in ("arrays", "PyDataset", "generator", "tf.data"):
            batches = Batches(x, y, 4)
            data = {
                "arrays": (x, y),
                "PyDataset": Batches(x[:28], y[:28], 4),
                "generator": (batches[i] for i in range(7)),
                "tf.data": tf.data.Dataset.from_tensor_slices((x, y)),
            }[kind]
            data = kr.data.shard(data, uneven=uneven)
            if kind == "tf.data":
                data = data.batch(4)
            arguments = data if kind == "arrays" else [data]
            model = make_classifier()
            model.compile(
                kr.DistributedOptimizer(keras.optimizers.SGD(0.1)),
                sparse_loss(),
            )
            model.fit(
                *arguments,
                batch_size=4 if kind == "arrays" else None,
                verbose=0,
                callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()],
            )
            results[f"{kind} {uneven}"] = (
                int(model.optimizer.iterations),
                digest(model.weights),
            )
    return results


def _fit_on_ranks(callbacks, epochs=3, rows=32, poison=None, x=None, y=None):
    """Returns the batches trained on, and the error."""
    keras.utils.set_random_seed(11)
    if x is None:
        x, y = kr.data.shard(make_data(rows))
    if poison is not None and kr.rank() == kr.size() - 1:
        x = x.copy()
        x[poison] = np.nan
    model = make_classifier()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), sparse_loss()
    )
    batches = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: batches.append(batch)
    )
    message = None
    try:
        model.fit(
            x,
            y,
            batch_size=4,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=[count, *callbacks],
        )
    except Exception as error:
        message = type(error).__name__, str(error)
    return batches, message


class OnLastRank(keras.callbacks.Callback):
    """Does something on the last rank only, at the end of an epoch."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def on_epoch_end(self, epoch, logs=None):
        if kr.rank() == kr.size() - 1:
            self.act(self.model)


class OnLastRankInBatch1(OnLastRank):
    def on_epoch_end(self, epoch, logs=None):
        pass

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1 and kr.rank() == kr.size() - 1:
            self.act(self.model)


def _stop(model):
    model.stop_training = True


def _change(model):
    model.layers[1].kernel.assign_add(
        keras.ops.ones_like(model.layers[1].kernel)
    )


def ends():
    """What makes ranks part, and what they say then."""
    start()
    broadcast = kr.callbacks.BroadcastGlobalVariablesCallback
    results = {
        "nan": _fit_on_ranks([keras.callbacks.TerminateOnNaN()], poison=5),
        "nan raised": _fit_on_ranks(
            [keras.callbacks.TerminateOnNaN(raise_error=True)], poison=5
        ),
        "stop": _fit_on_ranks([OnLastRank(_stop), broadcast()]),
        "change": _fit_on_ranks([OnLastRank(_change), broadcast()]),
        "not checked": _fit_on_ranks(
            [OnLastRank(_change), broadcast(check=False)], epochs=1
        ),
        "change within": _fit_on_ranks(
            [OnLastRankInBatch1(_change), kr.callbacks.ConsistencyCheck(1)]
        ),
    }
    # Nor are weights that were said to be each rank's own.
    for name, act in (("local", lambda model: None), ("local change", _change)):
        keras.utils.set_random_seed(11)
        x, y = kr.data.shard(make_data(32))
        model = make_classifier()
        optimizer = kr.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.1), model.layers[0]
        )
        model.compile(optimizer, sparse_loss())
        error = None
        try:
            model.fit(x, y, verbose=0, callbacks=[OnLastRank(act), broadcast()])
        except kr.errors.ConsistencyError as raised:
            error = str(raised)
        results[name] = error, [digest([w]) for w in model.weights]

    x, y = make_data(32)
    rows = slice(0, 8 if kr.rank() == 0 else 20)
    results["steps"] = _fit_on_ranks([broadcast()], x=x[rows], y=y[rows])

    # Statistics of its own data are not a difference.
    x, y = kr.data.shard(make_data(32))
    model = keras.Sequential(
        [
            keras.Input((10,)),
            keras.layers.BatchNormalization(),
            make_classifier(),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), sparse_loss()
    )
    model.fit(x, y, verbose=0, callbacks=[broadcast()])
    results["own statistics"] = digest(model.layers[0].weights)
    return results


ORDERS = 3


def decisions(directory):
    """Callbacks that decide by metrics, in several orders."""
    start()
    return [
        _decisions(order, f"{directory}/{order}") for order in range(ORDERS)
    ]


def _decisions(order, directory):
    keras.utils.set_random_seed(11)
    x, y = make_data(120)
    # What is best for one rank is not for the other.
    part = (y < 2) if kr.rank() == 0 else (y >= 2)
    model = make_classifier()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(1.5)), sparse_loss()
    )
    rates = []
    callbacks = [
        keras.callbacks.EarlyStopping(patience=6, restore_best_weights=True),
        kr.callbacks.ModelCheckpoint(
            f"{directory}/{{epoch:02d}}.weights.h5",
            save_best_only=True,
            save_weights_only=True,
        ),
        keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: rates.append(
                float(model.optimizer.learning_rate)
            )
        ),
        keras.callbacks.TerminateOnNaN(),
        kr.callbacks.BroadcastGlobalVariablesCallback(),
        kr.callbacks.MetricAverageCallback(),
    ]
    if order == 1:
        callbacks.reverse()
    elif order == 2:
        callbacks = callbacks[4:] + callbacks[:4]
    history = model.fit(
        *kr.data.shard((x[:24], y[:24])),
        batch_size=4,
        epochs=40,
        shuffle=False,
        verbose=0,
        validation_data=(x[part], y[part]),
        callbacks=callbacks,
    )
    saved = sorted(path.name for path in Path(directory).glob("*.h5"))
    kr.barrier(name="listed")
    return history.history["val_loss"], rates, saved, digest(model.weights)
