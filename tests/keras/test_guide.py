"""The examples of the guide run as they stand, on two ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented import blocks

GUIDE = Path(__file__).parents[2] / "docs/keras_guide.md"
MIGRATION = GUIDE.with_name("migration.md")

# What the guide says it leaves out.
PRELUDE = """
import keras
import numpy as np
import tensorflow as tf
import keras_ring as kr

def make_model():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(3, activation="softmax")]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        "sparse_categorical_crossentropy",
    )
    return model

rng = np.random.default_rng(1)
x = rng.normal(size=(160, 8)).astype("float32")
y = rng.integers(0, 2, size=160)
kr.init()
"""
START = """
keras.utils.set_random_seed(1)
model = make_model()
"""
END = """
sums = kr.allgather_object([float(w.sum()) for w in model.get_weights()])
print("section", {number}, "equal", sums[0] == sums[1], flush=True)
"""


def examples():
    return blocks(GUIDE.read_text() + MIGRATION.read_text(), "python")


@pytest.mark.long("examples")
def test_examples(tmp_path):
    found = examples()
    assert len(found) >= 11
    script = PRELUDE + "".join(
        START + text + END.format(number=number)
        for number, text in enumerate(found)
    )
    (tmp_path / "guide.py").write_text(script)
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2", "--"),
            *(sys.executable, "guide.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    equal = re.findall(r"section (\d+) equal (\w+)", finished.stdout)
    assert sorted(equal, key=lambda pair: int(pair[0])) == sorted(
        [(str(i), "True") for i in range(len(found))] * 2,
        key=lambda pair: int(pair[0]),
    )


def test_links():
    # Code may call what it takes from a list.
    text = re.sub(r"^```.*?^```$", "", GUIDE.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (GUIDE.parent / target).exists(), target
