"""Plain Keras loads models with classes of keras_ring once that is imported."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_ring as kr

_LOAD = """
{imports}
model = keras.saving.load_model({path!r})
schedule = model.optimizer._learning_rate
print(type(model.layers[-1]).__name__, type(schedule).__name__)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    kr.init()
    layer = kr.SyncBatchNormalization()
    model = keras.Sequential([keras.layers.Input((3,)), layer])
    schedule = kr.schedules.Warmup(0.1, 10)
    model.compile(keras.optimizers.SGD(schedule, momentum=0.9), "mse")
    model.fit(np.eye(3), np.ones((3, 3)), verbose=0)
    path = str(tmp_path_factory.mktemp("saved") / "model.keras")
    model.save(path)
    kr.shutdown()
    return path


@pytest.mark.parametrize(
    "imports",
    ["import keras, keras_ring", "import keras_ring, keras"],
    ids=["keras first", "keras last"],
)
def test_the_import_suffices(saved, imports):
    program = _LOAD.format(imports=imports, path=saved)
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "SyncBatchNormalization Warmup"
