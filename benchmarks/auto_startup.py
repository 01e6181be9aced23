"""What `--auto` costs a program as a whole, against the five lines.

Both train the same small model for an epoch, so that their time is that of the
start: imports, the job, a trace, and its end. Whole jobs are started in turns;
the median of the ratios of neighbours is shown, of time and of processor time.

    python benchmarks/auto_startup.py [--pairs 9] [--ranks 2]
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_integer("pairs", 9, "jobs of each")
flags.DEFINE_integer("ranks", 2, "of each job")

PLAIN = """
import keras
import numpy as np

x = np.random.normal(size=(640, 64)).astype("float32")
y = np.random.randint(0, 10, 640)
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(), loss)
model.fit(x, y, batch_size=64, verbose=0)
"""
CALLBACKS = """[
    kr.callbacks.BroadcastGlobalVariablesCallback(),
    kr.callbacks.MetricAverageCallback(),
]"""


def by_hand(ranks):
    """Returns the program with the five lines of the README."""
    return (
        PLAIN.replace(
            "import numpy as np\n",
            "import numpy as np\nimport keras_ring as kr\n\nkr.init()\n",
        )
        .replace(
            "keras.optimizers.Adam()",
            "kr.DistributedOptimizer(keras.optimizers.Adam())",
        )
        .replace(
            "model.fit(x, y, batch_size=64, verbose=0)",
            "x, y = kr.data.shard((x, y), check=False)\n"
            f"model.fit(x, y, batch_size={64 // ranks}, verbose=0,"
            f" callbacks={CALLBACKS})",
        )
    )


def run(program, *words):
    """Runs a job; returns the seconds it took, and those of processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "keras_ring", "run", *words]
    command += ["-np", str(FLAGS.ranks), "--", sys.executable, str(program)]
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        plain, hand = Path(folder, "plain.py"), Path(folder, "hand.py")
        plain.write_text(PLAIN)
        hand.write_text(by_hand(FLAGS.ranks))
        run(plain, "--auto"), run(hand)
        pairs = [(run(plain, "--auto"), run(hand)) for _ in range(FLAGS.pairs)]
    for place, what in enumerate(("time", "processor time")):
        ratios = [auto[place] / hand[place] for auto, hand in pairs]
        median = statistics.median(hand[place] for _, hand in pairs)
        print(
            f"{what}: --auto takes x {statistics.median(ratios):.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}) of {median:.2f} s"
        )


if __name__ == "__main__":
    app.run(main)
