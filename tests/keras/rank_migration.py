"""Calls as programs make them that were written for Horovod.

Each returns plain values. What is imported is all that differs from such a
program.
"""

import keras
import numpy as np
import tensorflow as tf

import keras_ring as hvd


def collectives():
    """Every collective, with the arguments and in the places of Horovod."""
    rank, size = hvd.rank(), hvd.size()
    x = tf.constant([1.0 + rank])
    mean, total = [1.5], [3.0]
    everyone = [1.0, 2.0]
    wanted = {}

    def check(name, found, expected):
        np.testing.assert_allclose(np.ravel(found), expected, err_msg=name)
        wanted[name] = np.ravel(expected).tolist()

    check("plain", hvd.allreduce(x), mean)
    check("average", hvd.allreduce(x, average=False), total)
    check("average=True", hvd.allreduce(x, average=True), mean)
    check("positional average", hvd.allreduce(x, False), total)
    check("op", hvd.allreduce(x, op=hvd.Sum), total)
    check("devices", hvd.allreduce(x, None, "/cpu:0", "/cpu:0"), mean)
    check(
        "all positional",
        hvd.allreduce(
            x, None, "", "", hvd.Compression.fp16, hvd.Sum, 0.5, 4.0, "all"
        ),
        [6.0],
    )
    check("name as with Keras", hvd.allreduce(x, "a name"), mean)
    check("Keras", hvd.allreduce(x, name="k", average=True), mean)
    check("value", hvd.allreduce(value=x, name="v"), mean)
    check(
        "compression", hvd.allreduce(x, compression=hvd.Compression.fp16), mean
    )
    check(
        "grouped",
        hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, device_dense=""),
        [3.0, 6.0],
    )
    check(
        "integers",
        hvd.allreduce(tf.constant([2]), op=hvd.Sum, prescale_factor=0.5),
        [2],
    )
    check("allgather", hvd.allgather(x, "gathered"), everyone)
    check("allgather name", hvd.allgather(x, name="n"), everyone)
    check("grouped_allgather", hvd.grouped_allgather([x], "g")[0], everyone)
    check("broadcast", hvd.broadcast(x, 1, "shared"), [2.0])
    check("broadcast root", hvd.broadcast(x, root_rank=0, name="r"), [1.0])
    check("alltoall", hvd.alltoall(tf.concat([x, x], 0)), everyone)
    received, splits = hvd.alltoall(tf.concat([x, x], 0), [1, 1], "a2a")
    check("alltoall splits", received, everyone)
    check("received splits", splits, [1, 1])
    pair = tf.concat([x, x], 0)
    check("reducescatter", hvd.reducescatter(pair, op=hvd.Sum), total)
    check("reducescatter device", hvd.reducescatter(pair, ""), mean)
    check("grouped_reducescatter", hvd.grouped_reducescatter([pair])[0], mean)
    check("object", hvd.broadcast_object([rank], 0, name="o"), [0])
    check("session", hvd.broadcast_object([rank], 1, None, "o"), [1])
    check("object_fn", hvd.broadcast_object_fn(root_rank=0)([rank]), [0])
    check("objects", hvd.allgather_object(rank, name="os"), [0, 1])
    check("size_op", hvd.size_op(0), [size])
    check("included", hvd.process_set_included_op(0), [1])
    variable = tf.Variable(x)
    hvd.broadcast_variables([variable], root_rank=0)
    check("broadcast_variables", variable, [1.0])
    hvd.broadcast_variables([variable], 0, inplace=True)
    hvd.barrier()
    hvd.barrier(hvd.global_process_set)
    check("join", hvd.join() in (0, 1), [1])
    return sorted(wanted)


def make_model(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, name="d")], name="m"
    )


def fit_as_horovod(directory):
    """As Horovod's examples for Keras do it."""
    model = make_model(hvd.rank())
    optimizer = keras.optimizers.SGD(0.1 * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, backward_passes_per_step=1, average_aggregated_gradients=True
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=optimizer,
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0, ""),
        hvd.callbacks.MetricAverageCallback(""),
        hvd.callbacks.LearningRateWarmupCallback(
            initial_lr=0.1 * hvd.size(), warmup_epochs=1, verbose=0
        ),
    ]
    rng = np.random.default_rng(hvd.rank())
    x = rng.normal(size=(16, 4)).astype("float32")
    y = rng.integers(0, 3, 16)
    model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
    path = f"{directory}/model.{hvd.rank()}.keras"
    model.save(path)
    again = hvd.load_model(path, [Own], {"unused": Own}, hvd.Compression.fp16)
    again.fit(x, y, batch_size=4, verbose=0)
    bare = hvd.load_model(path, compile=False, custom_optimizers=[Own])
    errors = []
    for settings in ({"banana": 3}, {"op": "sum"}):
        try:
            hvd.load_model(path, compile=False, **settings)
        except (TypeError, ValueError) as error:
            errors.append(type(error).__name__)
    return {
        "weights": [w.tolist() for w in again.get_weights()],
        "bare": getattr(bare, "optimizer", None) is None,
        "errors": errors,
    }


class Own(keras.optimizers.SGD):
    """An optimizer of the user."""


def optimizers():
    """Every argument of the wrappers, by name and by place."""
    fp16 = hvd.Compression.fp16
    sgd = keras.optimizers.SGD
    made = [
        hvd.DistributedOptimizer(sgd(), name="Distributed"),
        hvd.DistributedOptimizer(sgd(), "D", "", "", fp16, True),
        hvd.DistributedOptimizer(
            sgd(), device_dense="/cpu:0", device_sparse="/cpu:0", num_groups=2
        ),
        hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.1),
            "D",
            False,
            "",
            "",
            fp16,
            False,
            2,
            hvd.Sum,
        ),
        hvd.PartialDistributedOptimizer(sgd(), "D", local_layers=[]),
    ]
    kept = [
        (each._settings.compression is fp16, each._settings.groups)
        for each in made
    ]
    sparse = made[1]._settings.sparse_as_dense
    passes = made[3]._settings.backward_passes_per_step
    return kept, sparse, passes, made[3]._settings.op is hvd.Sum


def tapes_as_horovod():
    """As Horovod's examples for loops do it: shared after the first step."""
    model = make_model(hvd.rank())
    own = keras.layers.Dense(3)
    own.build((None, 3))
    optimizer = keras.optimizers.SGD(0.1)
    rng = np.random.default_rng(hvd.rank())
    x = tf.constant(rng.normal(size=(4, 4)), tf.float32)

    @tf.function
    def step(images, first_batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(own(model(images, training=True)) ** 2)
        tape = hvd.PartialDistributedGradientTape(
            tape, "", "", hvd.Compression.none, num_groups=1, local_layers=own
        )
        weights = model.trainable_variables + own.trainable_variables
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
        return loss

    for batch in range(3):
        step(x, batch == 0)
    plain = hvd.DistributedGradientTape(
        tf.GradientTape(), "", "", hvd.Compression.fp16, True, hvd.Sum
    )
    return {
        "shared": [w.tolist() for w in model.get_weights()],
        "own": [w.tolist() for w in own.get_weights()],
        "settings": (
            plain._settings.op is hvd.Sum,
            plain._settings.sparse_as_dense,
        ),
    }
