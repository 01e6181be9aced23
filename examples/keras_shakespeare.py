"""Trains a model that predicts the next character of a text.

The characters are embedded, so the gradient of the embedding holds only the
rows of characters that a batch contains, and those rows are what travels.

On two ranks:

    keras-ring run -np 2 -- python examples/keras_shakespeare.py --data my.txt

In one process:

    python examples/keras_shakespeare.py --data my.txt
"""

import hashlib
import pathlib

import keras
import numpy as np
from absl import app, flags

import keras_ring as kr

FLAGS = flags.FLAGS

DEFAULT_DATA = (
    pathlib.Path(__file__).resolve().parent.parent.parent
    / "shared/data/text/shakespeare.txt"
)

flags.DEFINE_string(
    "data",
    str(DEFAULT_DATA) if DEFAULT_DATA.exists() else None,
    "A text file, of some 100 kB or more.",
)
flags.DEFINE_integer("steps", 150, "Number of training steps.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Sequences in a step, on all ranks.", lower_bound=1
)
flags.DEFINE_integer("length", 64, "Characters in a sequence.", lower_bound=8)
flags.DEFINE_float("learning_rate", 0.003, "Learning rate.")
flags.DEFINE_integer("seed", 1, "Seed of the order and of the weights.")


def load_sequences(path, length):
    """Reads a text as rows of `length + 1` numbers, one per character."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    characters = sorted(set(text))
    number = {character: i for i, character in enumerate(characters)}
    numbers = np.array([number[character] for character in text], "int32")
    count = len(numbers) // (length + 1)
    rows = numbers[: count * (length + 1)].reshape(count, length + 1)
    return rows, len(characters)


def make_model(num_characters):
    """Returns a stack of convolutions that look at earlier characters only."""
    layers = [keras.Input((None,), dtype="int32")]
    layers.append(keras.layers.Embedding(num_characters, 64))
    for dilation in (1, 2, 4, 8):
        layers.append(
            keras.layers.Conv1D(
                96,
                2,
                padding="causal",
                dilation_rate=dilation,
                activation="relu",
            )
        )
    layers.append(keras.layers.Dense(num_characters))
    return keras.Sequential(layers)


def weights_checksum(model):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for weight in model.get_weights():
        checksum.update(weight.tobytes())
    return checksum.hexdigest()[:16]


def main(argv):
    """Trains, then measures the loss on the end of the text."""
    del argv
    if FLAGS.data is None:
        raise app.UsageError("Name a text file with --data.")
    if not pathlib.Path(FLAGS.data).is_file():
        raise app.UsageError(f"There is no file {FLAGS.data}.")
    sequences, num_characters = load_sequences(FLAGS.data, FLAGS.length)
    held_out = len(sequences) // 20
    if held_out < 1:
        raise app.UsageError(
            f"{FLAGS.data} is too short: {len(sequences)} sequences of "
            f"{FLAGS.length} characters, and it takes 20."
        )
    kr.init()
    keras.utils.set_random_seed(FLAGS.seed)

    # Each rank trains on its part of the text.
    train = kr.data.shard(
        sequences[:-held_out], uneven="drop", shuffle=True, seed=FLAGS.seed
    )
    batch_size = max(1, FLAGS.batch_size // kr.size())
    train = np.resize(train, (FLAGS.steps * batch_size, FLAGS.length + 1))

    model = make_model(num_characters)
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(FLAGS.learning_rate)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(
        train[:, :-1],
        train[:, 1:],
        batch_size=batch_size,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
            kr.callbacks.MetricAverageCallback(),
        ],
        verbose=2 if kr.rank() == 0 else 0,
    )

    # Each rank measures its part, and the callback makes it one result.
    test = kr.data.shard(sequences[-held_out:], uneven="drop")
    loss = model.evaluate(
        test[:, :-1],
        test[:, 1:],
        batch_size=batch_size,
        callbacks=[kr.callbacks.MetricAverageCallback()],
        verbose=0,
    )
    print(
        f"rank {kr.rank()}: test loss {loss:.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
