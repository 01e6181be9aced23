"""Checkpoints, and going on from them, on ranks that are processes."""

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time

import keras
import numpy as np
import pytest
import rank_saving
import rank_training

from keras_ring.keras.checkpoint import checkpoint_files
from tests.harness import ANY, only, run_calls, run_ranks

pytestmark = pytest.mark.timeout(900)

NAMES = [
    "round_trip",
    "types",
    "damaged",
    "failures",
    "resumes",
    "keeps_the_end",
    "other_steps",
    "model_checkpoint",
    "portable",
    "restore_only",
    # Last, for rank 0 has a disk of its own from then on.
    "full_disk",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("saving")


@pytest.fixture(scope="module")
def two_ranks(directory, killed):
    calls = [(name, str(directory / name)) for name in NAMES]
    for name in NAMES:
        # Some of them are made by what is tested.
        if name in ("model_checkpoint", "portable", "full_disk"):
            (directory / name).mkdir()
    result = run_calls(rank_saving, 2, calls, deadline=400)
    return lambda name: result(name, str(directory / name))


def test_a_round_trip(two_ranks):
    result = only(two_ranks("round_trip"))
    assert result["step"] == 4
    assert result["none"] is None
    for key in ("different", "same", "goes_on"):
        assert result[key], key


def test_the_manifest(two_ranks, directory):
    two_ranks("round_trip")
    (checkpoint,) = checkpoint_files.find(directory / "round_trip")
    manifest = checkpoint_files.read_manifest(checkpoint)
    assert (manifest["step"], manifest["ranks"]) == (4, 2)
    assert manifest["versions"]["keras"] == keras.__version__
    paths = [variable["path"] for variable in manifest["variables"]]
    assert any(path.endswith("kernel") for path in paths)
    assert any("seed_generator" in path for path in paths)
    assert any("velocity" in path for path in paths)


def test_variables_of_all_types(two_ranks):
    step, same, values = only(two_ranks("types"))
    assert (step, same) == (0, True)
    assert values == [[1, 0, 1]] * 5


def test_a_damaged_checkpoint(two_ranks):
    first, second = two_ranks("damaged")
    assert first[:2] == second[:2] == (20, True)
    (warning,) = (text for text in first[2] if "checkpoint" in text)
    assert re.search(
        r"step-00000030/state.npz has \d+ bytes, and its manifest says \d+. "
        "Going back to step 20",
        warning,
    )
    assert not any("checkpoint" in text for text in second[2])
    kind, message = only([first[3], second[3]])
    assert kind == "CheckpointError"
    assert "all checkpoints are damaged" in message
    assert "step-00000020/state.npz" in message


def test_failures_of_rank_0_are_those_of_all(two_ranks):
    errors, step, left = only(two_ranks("failures"))
    for name, text in {
        "full": r"Rank 0 could not write .* step 2 .*OSError:.*File too large",
        "file": r"Rank 0 could not write .*FileExistsError",
        "read-only": r"Rank 0 could not write .*/proc/x",
        "full model.keras": r"Rank 0 could not save the model to \S+full/model",
        # Where HDF5 would end the process.
        "full model.weights.h5": r"Rank 0 could not save .*File too large",
        "full backup": r"Rank 0 could not write .* step 1 .*File too large",
        "callback": r"Rank 0 could not save the model to /proc/x/model.keras",
        "read-only backup": r"Rank 0 could not write .*/proc/x",
        "model": r"it has 3 variables and the checkpoint \d+, and at pos",
    }.items():
        kind, message = errors[name]
        assert kind == "CheckpointError", (name, message)
        assert re.search(text, message, re.DOTALL), (name, message)
    assert errors["unbuilt"][0] == "ValueError"
    assert step == 1
    # Nothing half-written.
    assert left == [["step-00000001", "step-00000002"], []]


def test_a_full_disk_of_rank_0(two_ranks, directory):
    found = only(two_ranks("full_disk"))
    if found is None:
        pytest.skip("this process may not mount a file system")
    results, restored = found
    path = re.escape(str(directory / "full_disk"))
    for name in rank_saving.SAVES:
        before, seen, after = results[name]
        assert (before[0], after[0]) == ("nothing", "nothing"), name
        *failed, (error, _, whole) = seen
        assert error[0] == "nothing", (name, error)
        # Of the pages that it takes, there was each number less than that.
        assert len(failed) > 2, name
        for (kind, message), left, old in failed:
            assert kind == "CheckpointError", message
            assert re.search(
                rf"Rank 0 could not \S+ .*{path}/{name}.*"
                "No space left on device",
                message,
            ), message
            # Nothing half-written, and what was there is there.
            assert left == failed[0][1]
            assert not any("writing" in each for each in left)
            assert old == failed[0][2]
        assert whole != failed[0][2]
    assert results["backup"][0] == "CheckpointError"
    assert "No space left on device" in results["backup"][1]
    for kind, message in results["read-only"]:
        assert kind == "CheckpointError"
        assert "Read-only file system" in message
    assert restored == 3


@pytest.mark.longer("saves")
def test_a_resumed_training_ends_as_one_that_was_not_interrupted(two_ranks):
    first, second = two_ranks("resumes")
    assert set(first) == set(second) == set(rank_saving.RESUMES)
    for name in first:
        for result in (first[name], second[name]):
            assert result["saved"], name
            assert result["resumed"] == result["expected"], name
            assert not result["left"], name
        (weights, *_), history = first[name]["resumed"]
        (others, *_), others_history = second[name]["resumed"]
        assert (weights, history) == (others, others_history), name


def test_the_end_is_kept(two_ranks):
    epochs, same = only(two_ranks("keeps_the_end"))
    assert epochs == [1, 2]
    assert same


def test_another_number_of_steps_per_execution(two_ranks):
    kind, message = only(two_ranks("other_steps"))
    assert kind == "ValueError"
    assert "after batch 3 of an epoch" in message


def test_model_checkpoint(two_ranks, directory):
    first, second = two_ranks("model_checkpoint")
    for key in ("best", "val_loss", "files", "models"):
        only([first[key], second[key]])
    losses = first["val_loss"]
    assert first["best"] == min(losses)
    improved = [
        f"{i + 1:02d}.keras"
        for i in range(len(losses))
        if losses[i] < min([np.inf, *losses[:i]])
    ]
    # Hidden files would be here, too.
    manifests = [f"{name}.manifest.json" for name in improved]
    assert first["models"] == sorted([*improved, *manifests])
    assert first["files"] == [
        "best",
        "latest.weights.h5",
        "latest.weights.h5.manifest.json",
        "rank-0.csv",
    ]
    assert second["notes"] == []
    keys = ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert first["notes"] == [(epoch, keys, 6) for epoch in range(6)]
    csv = (directory / "model_checkpoint" / "rank-0.csv").read_text()
    assert len(csv.splitlines()) == 1 + 6


PLAIN = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "keras_ring":
            raise ImportError("keras_ring is not installed here")

sys.meta_path.insert(0, Blocked())
directory, x, y = sys.argv[1], *[sys.argv[1] + f for f in ("/x.npy", "/y.npy")]
import hashlib
import keras, numpy as np, tensorflow as tf
x, y = np.load(x), np.load(y)
model = keras.saving.load_model(directory + "/model.keras")
assert type(model.optimizer) is keras.optimizers.Adam
expected = np.load(directory + "/predictions.npy")
np.testing.assert_allclose(model.predict(x, verbose=0), expected, 1e-5, 1e-6)
exported = tf.saved_model.load(directory + "/exported")
np.testing.assert_allclose(exported.serve(x), expected, 1e-5, 1e-6)
checksum = hashlib.sha256()
for variable in model.optimizer.variables[2:]:
    checksum.update(np.ascontiguousarray(variable.numpy()).tobytes())
print("velocity", checksum.hexdigest())
print("iterations", int(model.optimizer.iterations))
for layer in model.layers:
    for weight in layer.weights:
        weight.assign(weight * 0)
model.load_weights(directory + "/model.weights.h5")
np.testing.assert_allclose(model.predict(x, verbose=0), expected, 1e-5, 1e-6)
history = model.fit(x, y, epochs=3, verbose=0)
print("losses", *history.history["loss"])
print("iterations", int(model.optimizer.iterations))
assert not any(name.partition(".")[0] == "keras_ring" for name in sys.modules)
"""


def test_a_saved_model_opens_without_keras_ring(two_ranks, directory):
    first, second = two_ranks("portable")
    assert first["same"]
    assert second["same"]
    # `kr.load_model` made its optimizer reduce.
    only([first["trained"], second["trained"]])
    path = directory / "portable"
    x, y = rank_training.make_data(64)
    np.save(path / "x.npy", x)
    np.save(path / "y.npy", y)
    np.save(path / "predictions.npy", first["predictions"])
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PLAIN), str(path)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert finished.returncode == 0, finished.stderr
    lines = dict(
        line.split(" ", 1)
        for line in finished.stdout.splitlines()
        if line.split(" ")[0] in ("velocity", "losses")
    )
    assert lines["velocity"] == first["velocity"]
    iterations = re.findall(r"^iterations (\d+)$", finished.stdout, re.M)
    # One epoch of 4 batches on each rank; then 3 of 2 batches in one process.
    assert iterations == [str(first["iterations"]), str(4 + 3 * 2)]
    losses = [float(loss) for loss in lines["losses"].split()]
    assert losses[-1] < losses[0]


@pytest.fixture(scope="module")
def killed(directory):
    """A directory that rank 0 was saving to when it was killed."""
    seed = random.randrange(2**32)
    print("seed", seed)
    delay = random.Random(seed).uniform(0.0, 0.1)
    path = directory / "restore_only"

    def kill(running):
        running.wait_for(0, "saving", timeout=100)
        time.sleep(delay)
        running.send(0, signal.SIGKILL)

    run_ranks(
        rank_saving.saves_until_killed,
        2,
        args=(str(path),),
        deadline=150,
        expect={0: -signal.SIGKILL, 1: ANY},
        on_start=kill,
    )
    found = checkpoint_files.find(path)
    return found[0].step


def test_a_rank_killed_while_it_saves(killed, two_ranks):
    """The whole way, with a model; the files alone are killed more often."""
    step, _, kernel = only(two_ranks("restore_only"))
    assert step == killed == kernel >= 2
