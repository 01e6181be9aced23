"""What a program begins once outside of its model: runs of trackers."""

import os
import sys
import types

import pytest

from keras_ring._auto import trackers
from tests.launcher.command import Command

# As the real ones go by their variables (tried with wandb 0.2x and MLflow 3).
WANDB = """
import os, pathlib
def init():
    if os.environ.get("WANDB_MODE") != "disabled":
        pathlib.Path(f"wandb-{os.getpid()}").write_text("run")
"""
MLFLOW = """
import os, pathlib
def log_metric(value):
    top = pathlib.Path(os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://"))
    top.mkdir(parents=True, exist_ok=True)
    (top / f"mlflow-{os.getpid()}").write_text(str(value))
"""
PROGRAM = """
import atexit, os, pathlib
os.chdir(os.environ["TRACKERS_FOLDER"])
atexit.register(lambda: pathlib.Path("summary.txt").write_text("done"))
import mlflow, wandb
import keras, numpy as np
wandb.init()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(np.ones((8, 3)), np.ones((8, 1)), verbose=0)
for value in history.history["loss"]:
    mlflow.log_metric(value)
print("own place", os.environ["MLFLOW_TRACKING_URI"])
"""


@pytest.mark.timeout(120)
def test_there_is_one_run(tmp_path):
    for name, text in (
        ("wandb", WANDB),
        ("mlflow", MLFLOW),
        ("train", PROGRAM),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    runs = tmp_path / "runs"
    command = Command(
        *("run", "-np", "2", "--auto", "--stdout", "all", "--"),
        *(sys.executable, str(tmp_path / "train.py")),
        TRACKERS_FOLDER=str(tmp_path),
        MLFLOW_TRACKING_URI=f"file://{runs}",
        WANDB_MODE="offline",
    )
    try:
        done = command.wait()
    finally:
        assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("wandb-*"))) == 1
    assert len(list(runs.iterdir())) == 1
    assert (tmp_path / "summary.txt").read_text() == "done"
    for module in ("mlflow", "wandb"):
        said = f"keras_ring: {module} records what rank 0 does, once"
        assert done.stderr.count(said) == 1, done.stderr
    # The other rank's place is its own, and gone.
    places = [
        line.partition("file://")[2]
        for line in done.stdout.splitlines()
        if "own place" in line
    ]
    assert sorted(map(os.path.exists, places)) == [False, True]


@pytest.fixture
def environment(monkeypatch):
    found = {"WANDB_MODE": "online"}
    monkeypatch.setattr(trackers, "os", types.SimpleNamespace(environ=found))
    return found


def test_rank_0_records(environment):
    trackers.mute(0)
    assert environment == {"WANDB_MODE": "online"}


def test_what_is_not_installed_is_left_alone(environment, monkeypatch):
    monkeypatch.setattr(trackers, "_is_installed", lambda name: name == "wandb")
    trackers.mute(1)
    assert environment == {"WANDB_MODE": "disabled"}
