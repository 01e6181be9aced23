"""A training whose job is started again ends as one without a failure."""

import sys

import numpy as np
import pytest

from tests.launcher.command import Command

pytestmark = [pytest.mark.long("faults"), pytest.mark.timeout(300)]

TRAINING = """
import os, signal, sys
import numpy as np
import keras
import keras_ring as kr

kr.init()
kills = len(sys.argv) > 3
keras.utils.set_random_seed(1)
keras.config.set_floatx("float64")
random = np.random.default_rng(3)
x = random.normal(size=(96, 5))
y = x @ random.normal(size=(5, 1))
x, y = kr.data.shard((x, y))
model = keras.Sequential(
    [keras.Input((5,)), keras.layers.Dense(7, activation="tanh"),
     keras.layers.Dropout(0.2), keras.layers.Dense(1)]
)
model.compile(kr.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")


class Killed(keras.callbacks.Callback):
    # Rank 1 at the first start, in the middle of an epoch; rank 0 at the next.
    batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        now = os.environ["KERAS_RING_RESTART"], kr.rank(), self.batches
        if kills and now in (("0", 1, 9), ("1", 0, 4)):
            os.kill(os.getpid(), signal.SIGKILL)


model.fit(
    x, y, batch_size=8, epochs=3, shuffle=False, verbose=0,
    callbacks=[
        kr.callbacks.BroadcastGlobalVariablesCallback(),
        kr.callbacks.BackupAndRestore(sys.argv[1], save_freq=2),
        Killed(),
    ],
)
if kr.rank() == 0:
    np.savez(sys.argv[2], *model.get_weights())
"""


def test_a_training_goes_on_to_the_same_bits(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    weights = {}
    for name, more in (("whole", []), ("killed", ["kills"])):
        file = tmp_path / f"{name}.npz"
        command = Command(
            *("run", "-np", "2", "--restarts", "2", "--"),
            *(sys.executable, str(script)),
            *(str(tmp_path / f"backup-{name}"), str(file), *more),
        )
        done = command.wait()
        assert command.wait_until_gone(5.0) == set()
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("starts the job again") == 2 * len(more)
        with np.load(file) as found:
            weights[name] = [found[key] for key in found.files]
    for one, other in zip(weights["whole"], weights["killed"], strict=True):
        assert np.array_equal(one, other)
