"""What single ranks do in tests of failures, security and steady states."""

import os
import resource
import time
from pathlib import Path
from typing import ClassVar

import tensorflow as tf

import keras_ring as kr
from keras_ring.bench import shapes
from tests.harness import notify


def train_until_killed(mode):
    """Small steps for ever; the test ends it by force."""
    kr.init()
    w = tf.Variable(tf.ones([1000]))

    def step():
        grads = [kr.allreduce(w * float(i), name=f"g{i}") for i in range(10)]
        w.assign_sub(1e-6 * tf.add_n(grads))

    if mode in ("function", "compiled"):
        step = tf.function(step, jit_compile=mode == "compiled")
    for i in range(100_000_000):
        step()
        if i == 5:
            notify("training")


def agree_until_seen(flag):
    """Small steps until all ranks see a file; returns True."""
    kr.init()
    notify("training")
    while True:
        seen = tf.constant(float(os.path.exists(flag)))
        if kr.allreduce(seen, op=kr.Min, name="seen").numpy():
            return True


def fit_until_killed():
    import keras
    import numpy as np
    import tensorflow as tf

    kr.init()
    model = keras.Sequential(
        [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse"
    )

    class Tell(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 5:
                notify("training")

    # tf.data tunes itself in a thread, which the end of an iterator waits for:
    # up to a second in a young job, of which no part is ours.
    options = tf.data.Options()
    options.autotune.enabled = False
    x = np.ones((64, 32), "float32")
    y = np.ones((64, 10), "float32")
    data = tf.data.Dataset.from_tensors((x, y)).repeat(1000)
    model.fit(
        data.with_options(options),
        epochs=1000,
        verbose=0,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            Tell(),
        ],
    )


def train_for(seconds):
    """Steps until the time is up on rank 0; returns how many."""
    end = time.monotonic() + seconds
    return _train_while(lambda: time.monotonic() < end)


def train_until(path, key_path):
    """Steps until there is a file on rank 0; returns how many."""
    _tell_key(key_path)
    return _train_while(lambda: not Path(path).exists())


def _tell_key(path):
    """For peers who know it and are wrong all the same."""
    if os.environ["KERAS_RING_RANK"] == "0":
        Path(path).write_text(os.environ["KERAS_RING_JOB_KEY"])


def _train_while(condition):
    kr.init()

    @tf.function
    def step(x, go_on):
        return (
            kr.allreduce(x, kr.Sum, name="g"),
            kr.broadcast(go_on, 0, name="go on"),
        )

    x = tf.ones([256])
    steps = 0
    while True:
        total, go_on = step(x, tf.constant(condition()))
        assert float(total[0]) == kr.size()
        steps += 1
        if steps == 5:
            notify("training")
        if not bool(go_on):
            break
    return steps, kr.metrics()["rejected_connections"]


def fit_until(path, key_path, width):
    """Fits a model until there is a file on rank 0; returns when it stepped.

    Returns:
        The end of each batch (`time.monotonic`), the number of rejected
        connections, and of open descriptors at the begin and at the end, and
        the seconds of a core that went into looking at connections.
    """
    import keras
    import numpy as np

    _tell_key(key_path)
    kr.init()
    model = keras.Sequential(
        [
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse"
    )

    class Clock(keras.callbacks.Callback):
        ends: ClassVar[list[float]] = []
        descriptors = 0

        def on_train_batch_end(self, batch, logs=None):
            self.ends.append(time.monotonic())
            if len(self.ends) == 50:
                type(self).descriptors = len(os.listdir("/proc/self/fd"))
                notify("training")
            if len(self.ends) % 20 == 0:
                go_on = tf.constant(not Path(path).exists())
                if not bool(kr.broadcast(go_on, 0, name="go on")):
                    self.model.stop_training = True

    rows = 32 * 1000
    model.fit(
        np.ones((rows, 64), "float32"),
        np.ones((rows, 10), "float32"),
        batch_size=32,
        epochs=1_000_000,
        verbose=0,
        callbacks=[kr.callbacks.BroadcastGlobalVariablesCallback(), Clock()],
    )
    return (
        Clock.ends,
        kr.metrics()["rejected_connections"],
        Clock.descriptors,
        len(os.listdir("/proc/self/fd")),
        _cpu_of_thread("kr-accept"),
    )


def _cpu_of_thread(name):
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise LookupError(f"no thread {name}")


def cpu_seconds_while_idle(seconds):
    """CPU time of the process in so many seconds between two collectives."""
    kr.init()
    for _ in range(20):
        kr.allreduce(tf.ones([1000]), name="x")
    kr.barrier()
    time.sleep(1)  # what TensorFlow and Python still do after a step

    def used():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    before = used()
    time.sleep(seconds)
    idle = used() - before
    kr.barrier()
    return idle


def many_names(count, steps):
    """Steps with `count` small tensors; returns control traffic of a step.

    The median: where a rank is late, its tensors come in several parts.
    """
    import numpy as np

    kr.init()
    tensor = tf.constant([float(kr.rank() + 1)])

    @tf.function
    def step():
        return [kr.allreduce(tensor, name=f"t{i}") for i in range(count)]

    for _ in range(5):
        results = step()
    assert {r.numpy().item() for r in results} == {(kr.size() + 1) / 2}
    totals = []
    for _ in range(steps + 1):
        found = kr.metrics()
        totals.append(
            [found[f"control_bytes_{way}"] for way in ("sent", "received")]
        )
        step()
    return float(np.median(np.diff(totals, axis=0).max(axis=1)))


def resnet50_steps(steps):
    """161 gradients per step; returns times and control traffic per step."""
    import numpy as np

    kr.init()
    tensor_shapes = shapes.resnet50()
    assert len(tensor_shapes) == 161
    tensors = [tf.fill(s, float(kr.rank() + 1)) for s in tensor_shapes]

    @tf.function
    def step():
        return [
            kr.allreduce(t, name=f"g{i}")
            for i, t in reversed(list(enumerate(tensors)))
        ]

    for _ in range(5):
        step()
    before = kr.metrics()
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        results = step()
        times.append(time.perf_counter() - began)
    after = kr.metrics()
    for result in results:
        np.testing.assert_allclose(result.numpy().flat[0], (kr.size() + 1) / 2)
    control = max(
        after[key] - before[key]
        for key in ("control_bytes_sent", "control_bytes_received")
    )
    return float(np.median(times)), control / steps
