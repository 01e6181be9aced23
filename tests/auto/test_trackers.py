"""What a program begins once outside of its model: runs of trackers."""

import http.server
import json
import os
import sys
import threading
import types

import pytest

from keras_ring.unchanged import trackers
from tests.launcher.command import Command

# As the real ones go by their variables (tried with wandb 0.2x and MLflow 3; of
# ClearML, as its documentation says).
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
CLEARML = """
import os, pathlib
class Task:
    @staticmethod
    def init():
        place = os.environ["CLEARML_CACHE_DIR"]
        if os.environ.get("CLEARML_OFFLINE_MODE") != "1":
            place = os.environ["CLEARML_SERVER"]
        pathlib.Path(place).mkdir(parents=True, exist_ok=True)
        pathlib.Path(place, f"clearml-{os.getpid()}").write_text("run")
        print("own place", f"file://{place}")
"""
PROGRAM = """
import atexit, os, pathlib
os.chdir(os.environ["TRACKERS_FOLDER"])
atexit.register(lambda: pathlib.Path("summary.txt").write_text("done"))
import clearml, mlflow, wandb
import keras, numpy as np
wandb.init()
clearml.Task.init()
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
        ("clearml", CLEARML),
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
        CLEARML_CACHE_DIR=str(tmp_path / "cache"),
        CLEARML_SERVER=str(tmp_path / "server"),
    )
    try:
        done = command.wait()
    finally:
        assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("wandb-*"))) == 1
    assert len(list(runs.iterdir())) == 1
    assert len(list((tmp_path / "server").iterdir())) == 1
    assert not (tmp_path / "cache").exists()
    assert (tmp_path / "summary.txt").read_text() == "done"
    for module in ("clearml", "mlflow", "wandb"):
        said = f"keras_ring: {module} records what rank 0 does, once"
        assert done.stderr.count(said) == 1, done.stderr
    # The other rank's places are its own, and gone.
    places = [
        line.partition("file://")[2]
        for line in done.stdout.splitlines()
        if "own place" in line
    ]
    assert sorted(map(os.path.exists, places)) == [False, False, True, True]


PACKAGE = """
import keras
from . import client
class Recorder(keras.callbacks.Callback):
    def __init__(self, where):
        super().__init__()
        self.client = client.Client(where)
    def on_train_begin(self, logs=None):
        self.client.send("begin", {})
    def on_epoch_end(self, epoch, logs=None):
        self.client.send("row", {"epoch": epoch, **logs})
"""
CLIENT = """
import json, urllib.request
class Client:
    def __init__(self, where):
        self.where = where
    def send(self, kind, values):
        values = {each: float(value) for each, value in values.items()}
        data = json.dumps([kind, values]).encode()
        request = urllib.request.Request(self.where, data)
        urllib.request.urlopen(request, timeout=30).close()
"""
RECORDED = """
import json, os, urllib.request
import keras, numpy as np
from experiments import Recorder
where = os.environ["TRACKERS_SERVER"]
class Posts(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        data = json.dumps(["own", {"epoch": epoch}]).encode()
        urllib.request.urlopen(where, data, timeout=30).close()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(
    np.ones((8, 3)), np.ones((8, 1)), epochs=3, verbose=0,
    callbacks=[Recorder(where), Posts()],
)
print(json.dumps(history.history["loss"]))
"""


class _Posted(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        size = int(self.headers["Content-Length"])
        self.server.posted.append(json.loads(self.rfile.read(size)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        del args


@pytest.fixture
def server():
    with http.server.HTTPServer(("127.0.0.1", 0), _Posted) as found:
        found.posted = []
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.timeout(120)
def test_callbacks_of_packages_post_once(tmp_path, server):
    site = tmp_path / "site-packages"
    (site / "experiments").mkdir(parents=True)
    (site / "experiments" / "__init__.py").write_text(PACKAGE)
    (site / "experiments" / "client.py").write_text(CLIENT)
    (tmp_path / "train.py").write_text(RECORDED)
    words = [str(site), os.environ.get("PYTHONPATH", "")]
    command = Command(
        *("run", "-np", "2", "--auto", "--"),
        *(sys.executable, str(tmp_path / "train.py")),
        PYTHONPATH=os.pathsep.join(filter(None, words)),
        TRACKERS_SERVER=f"http://127.0.0.1:{server.server_port}/",
    )
    try:
        done = command.wait()
    finally:
        assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout.splitlines()[-1])
    rows = [values for kind, values in server.posted if kind == "row"]
    assert [kind for kind, _ in server.posted].count("begin") == 1
    assert [each["epoch"] for each in rows] == [0, 1, 2]
    assert [each["loss"] for each in rows] == pytest.approx(losses)
    own = [values["epoch"] for kind, values in server.posted if kind == "own"]
    assert own == [0, 1, 2]


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
