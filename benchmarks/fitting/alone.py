"""What one process of `allocator.py` does: trains, and prints what it took.

    python -m benchmarks.fitting.alone TASK

TASK is a JSON object: `model`, `width`, `batch`, `steps`, and `arena`, whether
TensorFlow's tensors come from the arena.
"""

import json
import resource
import statistics
import sys
import time


def train(task):
    """Trains; returns the figures of a step and the resident memory."""
    # Before the first tensor.
    if task["arena"]:
        import tensorflow as tf

        from keras_ring.core import native

        refusal = native.install_arena("arena", tf.__version__, 1)
        if refusal:
            raise RuntimeError(refusal)
    import keras
    import tensorflow as tf

    from benchmarks.fitting import models

    keras.utils.set_random_seed(1)
    model = models.MODELS[task["model"]](task["width"])
    model.compile(
        keras.optimizers.SGD(0.001, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    batch = models.batch_for(model, task["batch"])
    data = tf.data.Dataset.from_tensors(batch).repeat()
    # Traces the step, and settles caches and memory.
    model.fit(data, steps_per_epoch=5, verbose=0)
    seconds = []

    class Clock(keras.callbacks.Callback):
        """Times each step."""

        def on_train_batch_begin(self, step, logs=None):
            self.began = time.perf_counter()

        def on_train_batch_end(self, step, logs=None):
            seconds.append(time.perf_counter() - self.began)

    cpu = time.process_time()
    model.fit(
        data, steps_per_epoch=task["steps"], callbacks=[Clock()], verbose=0
    )
    cpu = time.process_time() - cpu
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "step_ms": 1e3 * statistics.median(seconds),
        "cpu_ms": 1e3 * cpu / task["steps"],
        "resident_mib": usage.ru_maxrss / 1024,
    }


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]))))
