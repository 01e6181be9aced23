"""The examples of the guide with `tf.estimator` run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from lane import HAS_ESTIMATOR

GUIDE = Path(__file__).parents[2] / "docs/keras_guide.md"

PRELUDE = """
import numpy as np
import tensorflow as tf
import keras_ring as kr

kr.init()

def model_fn(features, labels, mode):
    weights = tf.compat.v1.get_variable("weights", [4, 1], tf.float64)
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) - labels))
    optimizer = kr.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(0.1)
    )
    step = tf.compat.v1.train.get_or_create_global_step()
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step)
    )

def input_fn():
    x = np.random.default_rng(kr.rank()).normal(size=(8, 4))
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1] * 2))
    return dataset.batch(8).repeat()
"""
END = """
weights = kr.allgather_object(estimator.get_variable_value("weights").tolist())
step = estimator.get_variable_value("global_step")
print("equal", weights[0] == weights[1], "step", step, flush=True)
"""


@pytest.mark.skipif(
    not HAS_ESTIMATOR, reason="this TensorFlow has no tf.estimator"
)
@pytest.mark.timeout(500)
def test_examples(tmp_path):
    pattern = r"^```python estimator\n(.*?)^```$"
    found = re.findall(pattern, GUIDE.read_text(), re.M | re.S)
    assert len(found) == 2
    (tmp_path / "guide.py").write_text("\n".join([PRELUDE, *found, END]))
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2", "--"),
            *(sys.executable, "guide.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.count("equal True step 60") == 2
