"""What ranks do in `test_training_on_ranks.py`. Each returns plain values."""

import contextlib
import hashlib
import io

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr


def start():
    """Joins the job. Initial weights are the same on all ranks by the seed."""
    kr.init()
    # To collect what was before takes a quarter of a second.
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy("float32")
    keras.utils.set_random_seed(11)


def digest(variables):
    """Returns a checksum of the bits of variables."""
    checksum = hashlib.sha256()
    for variable in variables:
        checksum.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return checksum.hexdigest()


def state_digest(model):
    return digest([*model.variables, *model.optimizer.variables])


def make_data(num, width=10, classes=4, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, width)).astype("float32")
    y = np.argmax(x @ rng.normal(size=(width, classes)), axis=1)
    return x, y.astype("int32")


def make_classifier(name="classifier", classes=4, width=10):
    return keras.Sequential(
        [
            keras.Input((width,)),
            keras.layers.Dense(32, activation="tanh", name="one"),
            keras.layers.Dense(classes, name="two"),
        ],
        name=name,
    )


def sparse_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class LossOfEachStep(keras.callbacks.Callback):
    """Keeps the loss of each step, which Keras shows as a running mean."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


class WeightsOfEachStep(keras.callbacks.Callback):
    """Keeps a checksum of the weights that each step starts from."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def on_train_batch_begin(self, batch, logs=None):
        self.weights.append(digest(self.model.variables))


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "Adam": lambda: keras.optimizers.Adam(0.01),
}


def parity(steps, batch_size):
    """Trains by `fit` and by a tape, on the same global batches."""
    start()
    results = {}
    for name, make in OPTIMIZERS.items():
        x, y = kr.data.shard(make_data(steps * batch_size))
        model = make_classifier()
        model.compile(kr.DistributedOptimizer(make()), sparse_loss())
        watch = LossOfEachStep()
        model.fit(
            x,
            y,
            batch_size=batch_size // kr.size(),
            shuffle=False,
            verbose=0,
            callbacks=[
                kr.callbacks.BroadcastGlobalVariablesCallback(),
                watch,
            ],
        )
        tape_losses, tape_model, tape_optimizer = _train_by_tape(
            make(), x, y, batch_size // kr.size()
        )
        results[name] = {
            "losses": watch.losses,
            "weights": digest(model.weights),
            "state": state_digest(model),
            "values": model.get_weights(),
            "tape_losses": tape_losses,
            "tape_weights": digest(tape_model.weights),
            "tape_state": digest(
                [*tape_model.variables, *tape_optimizer.variables]
            ),
        }
        start()
    return results


def _train_by_tape(optimizer, x, y, batch_size):
    start()
    model = make_classifier()
    loss_fn = sparse_loss()
    optimizer.build(model.trainable_variables)
    kr.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        tape = kr.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    losses = [
        float(step(x[i : i + batch_size], y[i : i + batch_size]))
        for i in range(0, len(x), batch_size)
    ]
    return losses, model, optimizer


def overflow(explicit, accumulation):
    """Rank 1 meets an infinity in one batch of eight; `fit` is plain."""
    start()
    keras.config.set_dtype_policy("mixed_float16")
    x, y = kr.data.shard(make_data(8 * 8 * kr.size()))
    x = x.copy()
    if kr.rank() == 1:
        x[8 * 3 + 2] = np.inf
    optimizer = keras.optimizers.SGD(
        0.1, momentum=0.9, gradient_accumulation_steps=accumulation
    )
    if explicit:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model = make_classifier()
    model.compile(kr.DistributedOptimizer(optimizer), sparse_loss())
    scales = []
    steps = []

    def look(batch, logs):
        scales.append(float(model.optimizer.dynamic_scale))
        steps.append(int(model.optimizer.inner_optimizer._iterations))

    model.fit(
        x,
        y,
        batch_size=8,
        shuffle=False,
        verbose=0,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            keras.callbacks.LambdaCallback(on_train_batch_end=look),
        ],
    )
    return {
        "scales": scales,
        "steps": steps,
        # Accumulated gradients are those of each rank until they are used.
        "state": digest(model.weights) if accumulation else state_digest(model),
        "finite": all(np.isfinite(w).all() for w in model.get_weights()),
    }


def embeddings():
    """Trains embeddings, whose gradients are rows, which are squared."""
    return [_embedding(sparse_as_dense) for sparse_as_dense in (False, True)]


def _embedding(sparse_as_dense):
    start()
    rng = np.random.default_rng(5)
    # Many duplicates within a batch, and between ranks.
    x = rng.integers(0, 12, size=(8 * 16, 6))
    y = (x.sum(axis=1) % 4).astype("int32")
    x, y = kr.data.shard((x, y))
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(20, 8),
            keras.layers.Flatten(),
            keras.layers.Dense(4),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(
            keras.optimizers.Adagrad(0.1), sparse_as_dense=sparse_as_dense
        ),
        sparse_loss(),
    )
    model.fit(x, y, batch_size=16 // kr.size(), shuffle=False, verbose=0)
    return state_digest(model), model.get_weights()


UNEQUAL = (20, 17)


def unequal_data(rank):
    x, y = make_data(sum(UNEQUAL), classes=2)
    begin = sum(UNEQUAL[:rank])
    rows = slice(begin, begin + UNEQUAL[rank])
    return x[rows], y[rows]


def metrics():
    """Ranks with unequal data; the metrics are those of all of it."""
    start()
    whole = make_data(sum(UNEQUAL), classes=2)
    model = make_classifier(classes=1)
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.3)),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[
            keras.metrics.BinaryAccuracy(threshold=0.0),
            keras.metrics.AUC(from_logits=True),
            keras.metrics.RootMeanSquaredError(),
        ],
    )
    expected = []

    class OneProcess(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            results = self.model.evaluate(
                *whole, verbose=0, return_dict=True, batch_size=5
            )
            expected.append(results)

    x, y = unequal_data(kr.rank())
    stopping = keras.callbacks.EarlyStopping(
        monitor="val_loss", min_delta=0.02, patience=0
    )
    # The callback which combines metrics comes last on purpose.
    history = model.fit(
        x,
        y,
        batch_size=5,
        epochs=30,
        shuffle=False,
        verbose=0,
        validation_data=(x, y),
        callbacks=[
            OneProcess(),
            stopping,
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.MetricAverageCallback(),
        ],
    )
    # Different numbers of batches, 7 and 3, are no matter here.
    part = slice(0, 33) if kr.rank() == 0 else slice(33, None)
    evaluated = model.evaluate(
        whole[0][part],
        whole[1][part],
        batch_size=5,
        verbose=0,
        return_dict=True,
        callbacks=[kr.callbacks.MetricAverageCallback()],
    )
    return {
        "history": history.history,
        "expected": expected,
        "evaluated": evaluated,
        "state": state_digest(model),
    }


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.5)
        self.dense = keras.layers.Dense(4)

    def call(self, x, training=False):
        return self.dense(self.dropout(x, training=training))


def broadcasts(root_rank):
    """Starts from different states; rank `root_rank` is the one to follow."""
    start()
    keras.utils.set_random_seed(100 + kr.rank())
    results = {}
    for kind in ("built", "subclassed"):
        model = Subclassed() if kind == "subclassed" else make_classifier()
        optimizer = keras.optimizers.Adam(0.01 * (1 + kr.rank()))
        model.compile(kr.DistributedOptimizer(optimizer), sparse_loss())
        watch = WeightsOfEachStep()
        x, y = kr.data.shard(make_data(32))
        own = digest(model.weights) if model.built else None
        model.fit(
            x,
            y,
            batch_size=8,
            verbose=0,
            callbacks=[
                kr.callbacks.BroadcastGlobalVariablesCallback(root_rank),
                watch,
            ],
        )
        results[kind] = {
            "own": own,
            "first": watch.weights[0] if own else None,
            "state": digest([*model.weights, *model.optimizer.variables]),
            "seeds": [
                generator.state.numpy().tolist()
                for layer in model._flatten_layers()
                for generator in layer._seed_generators
            ],
            "learning_rate": float(optimizer.learning_rate),
        }
    return results


def different_models():
    """Ranks with different models, and with one that has another name."""
    start()
    messages = []
    for name, layer in (("classifier", 4 + kr.rank()), (f"m{kr.rank()}", 4)):
        model = make_classifier(name, classes=layer)
        model.compile(kr.DistributedOptimizer("sgd"), sparse_loss())
        try:
            model.fit(
                *make_data(8),
                verbose=0,
                callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback()],
            )
        except ValueError as error:
            messages.append(str(error))
    # The job goes on.
    after = float(kr.allreduce(1.0, kr.Sum, name="after"))
    return messages, digest(model.weights), after


def unpicklable():
    pass


def objects():
    """Objects and variables of every type."""
    start()
    rank = kr.rank()
    results = {
        "broadcast": kr.broadcast_object({"from": rank}, root_rank=1),
        "gathered": kr.allgather_object("x" * (1 + 3 * rank)),
        "large": len(kr.broadcast_object(bytes(3_000_000 * (1 - rank)))),
    }
    try:
        kr.allgather_object((lambda: 0) if rank == 1 else 0)
    except Exception as error:
        results["failure"] = type(error).__name__, str(error)
    values = {}
    for dtype in (
        "float16 bfloat16 float32 float64 int8 uint8 int16 uint16 int32 "
        "uint32 int64 uint64 bool complex64"
    ).split():
        variable = tf.Variable(tf.cast([rank, 1 - rank, rank], dtype))
        kr.broadcast_variables([variable], root_rank=1)
        values[dtype] = tf.cast(variable, tf.float32).numpy().tolist()
    results["values"] = values
    try:
        kr.broadcast_variables([tf.Variable(tf.zeros(1 + rank))], 0)
    except ValueError as error:
        results["difference"] = str(error)
    return results


def local_updates():
    """Trains with a plain optimizer."""
    start()
    model = make_classifier()
    model.compile("sgd", sparse_loss())
    x, y = make_data(8)
    message = None
    try:
        model.fit(x, y, verbose=0)
    except Exception as error:
        message = type(error).__name__, str(error)
    with kr.allow_local_updates():
        model.fit(x, y, verbose=0)
    return message


def two_models_of_one_name():
    """Both gradients are computed before either is applied, as GANs do."""
    start()
    models = [make_classifier(), make_classifier()]
    optimizers = [
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)) for _ in models
    ]
    for model, optimizer in zip(models, optimizers, strict=True):
        kr.broadcast_variables(model.variables, 0)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_mean(model(x) ** 2) for model in models]
        gradients = [
            tape.gradient(loss, model.trainable_variables)
            for loss, model in zip(losses, models, strict=True)
        ]
        for i, model in enumerate(models):
            optimizers[i].apply(gradients[i], model.trainable_variables)

    x, _ = kr.data.shard(make_data(40))
    for i in range(10):
        step(x[2 * i : 2 * i + 2])
    return [digest(model.weights) for model in models]


def progress_bars():
    """Whether anything is printed."""
    start()
    model = make_classifier()
    model.compile(kr.DistributedOptimizer("sgd"), sparse_loss())
    x, y = make_data(32)
    calls = {
        "fit": lambda: model.fit(x, y),
        "evaluate": lambda: model.evaluate(x, y),
        "fit, verbose": lambda: model.fit(x, y, verbose=1),
    }
    printed = {}
    for name, call in calls.items():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            call()
        printed[name] = bool(out.getvalue())
    return printed


def save_and_load(path):
    """Rank 0 saves; all load, and go on training."""
    start()
    x, y = kr.data.shard(make_data(64))
    model = make_classifier()
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(0.01)), sparse_loss()
    )
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
    model.fit(x, y, **fit)
    if kr.rank() == 0:
        model.save(path)
    kr.barrier(name="saved")
    loaded = kr.load_model(path)
    same = state_digest(loaded) == state_digest(model)
    model.fit(x, y, **fit)
    loaded.fit(x, y, **fit)
    return same, state_digest(loaded), state_digest(model)
