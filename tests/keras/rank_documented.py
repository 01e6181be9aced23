"""Runs examples of the documentation, in ranks."""

import contextlib
import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras_ring as kr
from tests.documented import Example

# What examples leave to the reader.
PRELUDE = """
import socket
import keras
import numpy as np
import tensorflow as tf
import keras_ring as kr

keras.utils.set_random_seed(1)
model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(3, activation="softmax")]
)
optimizer = kr.DistributedOptimizer(keras.optimizers.SGD(0.1))
loss_fn = keras.losses.SparseCategoricalCrossentropy()
model.compile(optimizer, loss_fn, metrics=["accuracy"])
x = np.linspace(-1, 1, 64, dtype="float32").reshape(16, 4)
y = np.arange(16) % 3
dataset = tf.data.Dataset.from_tensor_slices((x, y))
data = kr.data.shard(dataset).batch(4)
validation = data
callbacks = []
"""
# The same of examples of `keras_ring.core`.
CORE_PRELUDE = """
import numpy as np
from keras_ring import core as kr
callbacks = []
"""
# What some examples leave to the reader besides, by their names.
ALSO = {
    "core.barrier": "download = print; data = 'data'",
    "core.join": """
statistics, total = np.sum, 0.0
batches_of_this_rank = [np.ones(3)] * (1 + kr.rank())
""",
    "core.require_same": "paths = ['a', 'b']",
    "kr.BroadcastGlobalVariablesHook": """
stack.enter_context(tf.Graph().as_default())
step = tf.compat.v1.train.get_or_create_global_step()
train_op = tf.compat.v1.assign_add(step, 250)
""",
    "kr.Compression": "optimizer = keras.optimizers.SGD(0.1)",
    "kr.DistributedGradientTape": "optimizer = keras.optimizers.SGD(0.1)",
    "kr.PartialDistributedGradientTape": "adapter = model.layers[0]",
    "kr.ProcessSet": "value = 1.0; kr.shutdown()",
    "kr.allgather": "local_predictions = x[: kr.rank() + 1]",
    "kr.allow_local_updates": """
weights = model.trainable_variables
grads = [tf.ones_like(w) for w in weights]
""",
    "kr.allreduce": "loss = tf.constant(1.0)",
    "kr.alltoall": """
sorted_inputs = x[: kr.size()]
splits = [1] * kr.size()
expert = model
""",
    "kr.barrier": "download = print; data = 'data'",
    "kr.broadcast": "seed = 7 + kr.rank()",
    "kr.broadcast_": """
weights = tf.Variable([1.0, 2.0])
step = tf.Variable(3, dtype=tf.int64)
""",
    "kr.broadcast_global_variables": """
stack.enter_context(tf.Graph().as_default())
variable = tf.compat.v1.get_variable("v", initializer=[1.0, 2.0])
session = stack.enter_context(tf.compat.v1.Session())
""",
    "kr.broadcast_object": "read_settings = dict",
    "kr.broadcast_object_fn": "epochs = 2; shuffled_files = list",
    "kr.callbacks.LearningRateWarmupCallback": "loss = 'mse'",
    "kr.callbacks.RankZeroOnly": "draw = print",
    "kr.checkpoint.save": """
start, batches = 8998, iter(range(10_000))
train_step = bool
""",
    "kr.data.shard": """
if kr.rank() == 0:
    for number in range(2):
        with tf.io.TFRecordWriter(f"train-{number}.tfrecord") as writer:
            for row in x[8 * number : 8 * (number + 1)]:
                writer.write(row.tobytes())
kr.barrier()

def parse(record):
    row = tf.reshape(tf.io.decode_raw(record, tf.float32), [4])
    return row, tf.cast(row[0] > 0, tf.int64)
""",
    "kr.elastic.run": "epochs, data, step = 2, range(3), bool",
    **dict.fromkeys(
        (
            "kr.elastic.CommitStateCallback",
            "kr.elastic.UpdateBatchStateCallback",
            "kr.elastic.UpdateEpochStateCallback",
        ),
        "state = kr.elastic.KerasState(model, batch=0, epoch=0)",
    ),
    "kr.grouped_allgather": "labels, scores = y[:2], x[:3]",
    "kr.grouped_allreduce": "loss, accuracy = 1.0, 0.5",
    "kr.grouped_reducescatter": "gradients = [x, x[:3]]",
    "kr.join": """
optimizer = keras.optimizers.SGD(0.1)
batches_of_this_rank = [(x, y)] * (1 + kr.rank())
""",
    "kr.load_model": """
if kr.rank() == 0:
    model.save("model.keras")
kr.barrier()
""",
    "kr.reducescatter": "table = x",
}
# What makes use of what an example has made.
USE = """
if callbacks:
    model.fit(x, y, validation_data=validation, callbacks=callbacks, verbose=0)
"""
USE_ALSO = {
    "kr.SyncBatchNormalization": "model(tf.ones([2, 8, 8, 3]), training=True)",
    "kr.rank_op": "assert len(shard(x)) == len(x) // kr.size()",
    "kr.schedules.Warmup": """
model.compile(optimizer, loss_fn)
model.fit(x, y, verbose=0)
""",
}


def _run(example: Example, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    is_of_core = example.name.startswith(("core.", "docs/api/core.md"))
    with contextlib.ExitStack() as stack:
        names: dict[str, Any] = {"__name__": "__main__", "stack": stack}
        stack.callback(kr.shutdown)
        kr.init()
        for part, code in (
            ("prelude", CORE_PRELUDE if is_of_core else PRELUDE),
            ("what it leaves", ALSO.get(example.name, "")),
            ("example", example.code),
            ("use", USE + USE_ALSO.get(example.name, "")),
        ):
            exec(compile(code, f"<{part} of {example}>", "exec"), names)


def run(examples: Sequence[Example], directory: str) -> dict[str, str]:
    """Runs examples, each in a folder of its own.

    Returns:
        The tracebacks of those that fail, by their names.
    """
    failed = {}
    for example in examples:
        # What a rank that hangs was doing.
        print(example, flush=True)
        try:
            _run(example, Path(directory) / example.name.replace("/", "."))
        except Exception:
            failed[example.name] = traceback.format_exc()
    return failed
