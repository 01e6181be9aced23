"""What ranks do in `test_data_on_ranks.py`. Each returns plain values."""

import contextlib
import io
import logging
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from rank_training import make_classifier, sparse_loss, start

import keras_ring as kr
from keras_ring.keras.agreement import cache_files, file_systems


@contextlib.contextmanager
def warnings_of_absl():
    """Collects the lines that go to the log."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("absl")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def _files(folder, num_files=8):
    if kr.rank() == 0:
        for number in range(num_files):
            for label in ("no", "yes"):
                os.makedirs(f"{folder}/{label}", exist_ok=True)
                with open(f"{folder}/{label}/{number}.txt", "w") as file:
                    file.write(f"{label} {number}")
    kr.barrier(name="files")


def _pipelines(folder):
    """Returns data that a user may split, by name."""
    numbers = tf.data.Dataset.range(40)
    x = np.arange(40.0).reshape(20, 2)
    rank = kr.rank()

    def directory(**arguments):
        return keras.utils.text_dataset_from_directory(
            folder, batch_size=4, verbose=False, **arguments
        )

    def of_rank(ranks_own):
        return np.random.default_rng(rank if ranks_own else 0)

    return {
        "shuffle": lambda: numbers.shuffle(40),
        "shuffle inside": lambda: numbers.batch(8).flat_map(
            lambda batch: tf.data.Dataset.from_tensor_slices(batch).shuffle(8)
        ),
        "list_files": lambda: tf.data.Dataset.list_files(f"{folder}/*/*.txt"),
        "directory": lambda: directory(),
        "permutation": lambda: of_rank(True).permutation(x),
        "labels": lambda: (x, of_rank(True).permutation(20)),
        "names": lambda: tf.data.Dataset.from_tensor_slices(
            of_rank(True).permutation([f"file{i}" for i in range(20)])
        ),
        "seed": lambda: numbers.shuffle(40, seed=1 + rank),
        "any order": lambda: numbers.map(
            lambda n: n, num_parallel_calls=2, deterministic=False
        ),
        "twice": lambda: numbers.shard(2, rank),
        "length": lambda: x[: 10 + rank],
        "shuffle, seed": lambda: numbers.shuffle(40, seed=1),
        "shuffle each time alike": lambda: numbers.shuffle(
            40, seed=1, reshuffle_each_iteration=False
        ),
        "shuffle inside, seed": lambda: (
            numbers.batch(8)
            .flat_map(
                lambda batch: tf.data.Dataset.from_tensor_slices(batch).shuffle(
                    8, seed=1
                )
            )
            .apply(tf.data.experimental.assert_cardinality(40))
        ),
        "list_files, seed": lambda: tf.data.Dataset.list_files(
            f"{folder}/*/*.txt", seed=1
        ),
        "directory, seed": lambda: directory(seed=1),
        "directory, in order": lambda: directory(shuffle=False),
        "permutation, seed": lambda: of_rank(False).permutation(x),
        # What another processor may make of it.
        "rounding": lambda: x.astype("float32") * np.float32(1 + 1e-7 * rank),
    }


def different_data(folder):
    """Returns what each way of shuffling comes to: an error, or a count."""
    kr.init()
    # As in a program that sets no seed.
    np.random.seed(None)
    tf.random.set_seed(None)
    _files(folder)
    results = {}
    for name, make in _pipelines(folder).items():
        try:
            part = kr.data.shard(make())
        except ValueError as error:
            results[name] = str(error)
            continue
        if not isinstance(part, tf.data.Dataset):
            results[name] = "right"
            continue
        epochs = []
        for _ in range(2):
            elements = [
                row.decode() if isinstance(row, bytes) else int(row)
                for element in part.as_numpy_iterator()
                for row in np.ravel(
                    element[0] if isinstance(element, tuple) else element
                )
            ]
            gathered = kr.allgather_object(elements)
            epochs.append([*gathered[0], *gathered[1]])
        lost = len(set(epochs[0])) != len(epochs[0])
        results[name] = (
            "lost"
            if lost
            else "right, again"
            if epochs[0] == epochs[1]
            else "right"
        )
    kept = kr.data.shard(tf.data.Dataset.range(8).shuffle(8), check=False)
    results["check=False"] = len(list(kept))
    return results


# As programs for Horovod do it; with the seed of what shuffles before.
SHARDED = {"sharded": None, "sharded, seed": 3, "sharded, seeds of ranks": None}


def same_batch(kind):
    """Trains on data that are split, or not; returns what is said of it."""
    start()
    rng = np.random.default_rng(3)
    x = rng.normal(size=(64, 10)).astype("float32")
    y = rng.integers(0, 4, size=64)
    if kind == "split":
        x, y = kr.data.shard((x, y))
    elif kind == "constant":
        x, y = np.ones_like(x), np.ones_like(y)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    if kind in SHARDED:
        # As of a program that sets no seed.
        tf.random.set_seed(None)
        seed = kr.rank() if kind.endswith("of ranks") else SHARDED[kind]
        data = data.shuffle(64, seed=seed)
        data = data.shard(kr.size(), kr.rank())
    data = data.batch(10)
    model = make_classifier()
    model.compile(
        kr.DistributedOptimizer("sgd"),
        sparse_loss(),
        run_eagerly=kind == "eager",
        steps_per_execution=3 if kind == "several steps" else 1,
    )
    traces = []
    train_step = model.train_step

    def counted(data):
        traces.append(0)
        return train_step(data)

    model.train_step = counted
    callbacks = [kr.callbacks.BroadcastGlobalVariablesCallback()]
    printed = io.StringIO()
    verbose = 0 if kind == "eager" else 2
    with warnings_of_absl() as lines, contextlib.redirect_stdout(printed):
        for _ in range(2):
            model.fit(data, epochs=2, verbose=verbose, callbacks=callbacks)
    return {
        "printed": [
            line
            for line in printed.getvalue().splitlines()
            if "global batch" in line
        ],
        "lines": [line for line in lines if "same batch" in line],
        "shuffled": [line for line in lines if "Dataset.shard" in line],
        "iterations": int(model.optimizer.iterations),
        "traces": len(traces),
        "weights": [w.tolist() for w in model.get_weights()],
    }


def many_files(folder, sizes, options):
    """Returns the elements that this rank reads from files, by epoch."""
    start()
    if kr.rank() == 0:
        first = 0
        for number, size in enumerate(sizes):
            path = f"{folder}/part-{number:02d}.tfrecord"
            with tf.io.TFRecordWriter(path) as writer:
                for element in range(first, first + size):
                    writer.write(str(element).encode())
            first += size
    kr.barrier(name="files")
    read = []
    part = kr.data.shard(files=f"{folder}/part-*.tfrecord", **dict(options))
    for _ in range(2):
        read.append([int(element) for element in part.as_numpy_iterator()])
    return read, int(part.cardinality())


def cached_by_hosts(folder):
    """Returns what is said of one file on a file system of both hosts."""
    start()
    mounts = Path(folder, f"mounts-{kr.rank()}")
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"23 22 0:45 / {folder} rw - nfs4 files:/export rw\n"
    )
    found = []
    for system in (file_systems._MOUNTS, mounts):
        file_systems._MOUNTS = system
        data = tf.data.Dataset.range(8).cache(os.path.join(folder, "one"))
        try:
            cache_files.require_own_files([data], f"of {len(found)}")
            found.append(kr.cross_size())
        except ValueError as error:
            found.append(str(error))
    return found


def cached_in_files(folder):
    """Returns what is said of each way, and what ranks get of the others."""
    start()
    x = np.arange(16, dtype="float32").reshape(16, 1)
    whole = tf.data.Dataset.from_tensor_slices((x, x))

    def train(data):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(kr.DistributedOptimizer("sgd"), "mse")
        model.fit(data.batch(4), epochs=2, verbose=0)
        return sorted(int(value) for each, _ in data for value in each)

    one = os.path.join(folder, "one")
    complete = os.path.join(folder, "complete")
    own = os.path.join(folder, f"own-{kr.rank()}-of-{kr.size()}")
    if kr.rank() == 0:
        list(whole.cache(complete))
    kr.barrier(name="complete")
    ways = {
        "before": lambda: train(kr.data.shard(whole.cache(one))),
        "behind": lambda: train(kr.data.shard(whole).cache(one)),
        "complete behind": lambda: train(kr.data.shard(whole).cache(complete)),
        "complete before": lambda: train(kr.data.shard(whole.cache(complete))),
        "own": lambda: train(kr.data.shard(whole).cache(own)),
        "memory": lambda: train(kr.data.shard(whole).cache()),
    }
    found = {}
    for name, way in ways.items():
        try:
            found[name] = way()
        except ValueError as error:
            found[name] = str(error)
    return found
