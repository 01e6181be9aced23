"""What one process of `fit_scaling.py` does.

    python -m benchmarks.fitting.worker FOLDER

FOLDER has the task; the processes meet there (see `Meeting`) and each leaves
its result. The launcher says which of them this is, also to those that are
independent of each other and never join a job.
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

_BUSY = ("wait_ns", "pack_ns", "reduce_ns", "unpack_ns")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What all processes of a run do.

    Args:
        distributed: Whether they train one model together, not one each.
        model: A key of `models.MODELS`.
        width: Of the model.
        batch: Images of each process in a step.
        steps: Steps in an epoch.
        epochs: Epochs that are measured, after a short one that is not.
        cores: The cores; each process is pinned to one.
        patience: Seconds that the processes wait for each other.
    """

    distributed: bool
    model: str
    width: int
    batch: int
    steps: int
    epochs: int
    cores: list[int]
    patience: float


@dataclasses.dataclass(kw_only=True)
class Result:
    """What one process has measured.

    Args:
        seconds: Of each epoch.
        cpu_seconds: CPU time of each epoch.
        busy_ns: Of each epoch, how long communication was at work; `None`
            where nothing counts it.
        gradient_bytes: Bytes of the model's gradients.
    """

    seconds: list[float] = dataclasses.field(default_factory=list)
    cpu_seconds: list[float] = dataclasses.field(default_factory=list)
    busy_ns: list[int] | None = None
    gradient_bytes: int = 0


class Meeting:
    """Lets processes wait for each other through files.

    Not through the job, since the independent processes have none, and both
    sides must begin alike.

    Args:
        folder: Where the files are.
        rank: Of this process.
        size: How many there are.
        patience: Seconds until it is an error.
    """

    def __init__(self, folder, rank, size, patience):
        self._folder = folder
        self._rank = rank
        self._size = size
        self._patience = patience

    def wait(self, name):
        """Returns when all have come to the meeting of this name."""
        (self._folder / f"{name}.{self._rank}").touch()
        files = [self._folder / f"{name}.{i}" for i in range(self._size)]
        end = time.monotonic() + self._patience
        while not all(file.exists() for file in files):
            if time.monotonic() > end:
                raise TimeoutError(f"nobody comes to {name}")
            time.sleep(0.001)


def busy_ns(metrics):
    """Returns how long communication was at work, or `None`.

    Packing, reducing and unpacking take a core, waiting for other ranks does
    not; a training step that did all of it after its computation would be
    longer by their sum.
    """
    if not all(key in metrics for key in _BUSY):
        return None
    return sum(metrics[key] for key in _BUSY)


def train(task, meeting):
    """Trains and returns the `Result`."""
    import keras
    import tensorflow as tf

    import keras_ring as kr
    from benchmarks.fitting import models

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(1)
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9)
    callbacks = []
    if task.distributed:
        kr.init()
        optimizer = kr.DistributedOptimizer(optimizer)
        callbacks = [kr.callbacks.BroadcastGlobalVariablesCallback(0)]
    model = models.MODELS[task.model](task.width)
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    result = Result(
        gradient_bytes=4 * sum(int(tf.size(w)) for w in model.trainable_weights)
    )

    def busy():
        return busy_ns(kr.metrics()) if task.distributed else None

    class Clock(keras.callbacks.Callback):
        """Times each epoch, which all begin together."""

        def on_epoch_begin(self, epoch, logs=None):
            meeting.wait(f"epoch{epoch}")
            self.busy, self.cpu_began = busy(), time.process_time()
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            result.seconds.append(time.perf_counter() - self.began)
            result.cpu_seconds.append(time.process_time() - self.cpu_began)
            if self.busy is not None:
                result.busy_ns = result.busy_ns or []
                result.busy_ns.append(busy() - self.busy)

    batch = models.batch_for(model, task.batch)
    data = tf.data.Dataset.from_tensors(batch).repeat()
    # Traces the step, and settles caches on both sides.
    model.fit(data, steps_per_epoch=3, callbacks=callbacks, verbose=0)
    model.fit(
        data,
        steps_per_epoch=task.steps,
        epochs=task.epochs,
        callbacks=[Clock()],
        verbose=0,
    )
    return result


def main(folder):
    """Pins this process, trains, and leaves the result."""
    task = Task(**json.loads((folder / "task.json").read_text()))
    rank = int(os.environ["KERAS_RING_RANK"])
    size = int(os.environ["KERAS_RING_SIZE"])
    # Before any thread is started, for they inherit it.
    os.sched_setaffinity(0, {task.cores[rank % len(task.cores)]})
    result = train(task, Meeting(folder, rank, size, task.patience))
    text = json.dumps(dataclasses.asdict(result))
    (folder / f"result.{rank}.json").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
