"""The observer sees all that a script does, and changes none of it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.auto import compare, difference, starting

_PROGRAMS = Path(__file__).parent / "programs"
_SEEN = _PROGRAMS / "seen.py"


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("observed")
    return starting.start(_SEEN, folder / "run", words=("fail",), float64=False)


def test_it_is_told_to_fail(observed):
    assert observed.returncode == 1
    assert observed.stderr.splitlines()[-1] == "LookupError: as asked"
    error = observed.ranks[0]["error"]
    assert error["class"] == "builtins.LookupError"
    assert error["text"] == "as asked"
    assert "seen.py" in error["traceback"]
    # That is no refusal.
    assert compare._refusal(observed) == ""


def test_models(observed):
    """That of a function that is over, and that of a loop; no unused one."""
    models = observed.ranks[0]["models"]
    shapes = [[weight.shape for _, weight in weights] for _, weights in models]
    assert shapes == [[(3, 1), (1,)], [(3, 1), (1,)]]
    saved = np.load(observed.work / "weights.npz")
    for (_, weight), name in zip(models[0][1], saved.files, strict=True):
        assert np.array_equal(weight, saved[name])
    optimizers = observed.ranks[0]["optimizers"]
    assert [(k, n) for k, n, _ in optimizers] == [("SGD", 4), ("Adam", 3)]
    for (_, _, weights), (_, model) in zip(optimizers, models, strict=True):
        for mine, (_, theirs) in zip(weights, model, strict=True):
            assert np.array_equal(mine, theirs)


def test_calls(observed):
    """What the script has called, but not how Keras validates."""
    calls = observed.ranks[0]["calls"]
    assert [name for name, _ in calls] == ["predict", "predict", "fit"]
    assert calls[0][1].shape == (2, 1)
    history = calls[2][1]
    assert list(history) == ["loss", "mae", "val_loss", "val_mae"]
    assert str(history["loss"]) in observed.stdout


def test_files(observed):
    names = ["best.weights.h5", "log.csv", "weights.npz"]
    assert observed.ranks[0]["writes"] == names
    assert list(difference.listing(observed.work)) == names


def test_nothing_is_changed(observed, tmp_path):
    plain = subprocess.run(
        [sys.executable, _SEEN],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout == observed.stdout
    assert difference.of_folders(tmp_path, observed.work, 0.0) == ""


def test_float64_is_set_before_the_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import keras\nprint(keras.config.floatx(), __name__, __file__)\n"
    )
    run = starting.start(script, tmp_path / "run")
    assert run.stdout == f"float64 __main__ {script}\n", run.stderr
    assert run.ranks[0]["models"] == []


def test_ranks_that_train_alone(tmp_path):
    """Without `--auto` each of them does everything, and writes it."""
    script = _PROGRAMS / "alone.py"
    one = starting.start(script, tmp_path / "one", float64=False)
    many = starting.start(
        script, tmp_path / "many", 2, float64=False, launcher_words=()
    )
    verdict = compare.judge(one, many)
    assert verdict.word == compare.DIFFERENT
    assert verdict.reason == "kernel.txt is written by ranks [0, 1]"
    assert verdict.apart == 0.0
    assert not verdict.shared
    assert verdict.printed.startswith("other ranks print lines, too")


def test_one_process_runs_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("open('out', 'w').write('first')\n")
    folder = tmp_path / "run"
    first = starting.start_once(script, folder, False)
    assert starting.start_once(script, folder, False) == first
    script.write_text("open('out', 'w').write('second')\n")
    second = starting.start_once(script, folder, False)
    assert (second.work / "out").read_text() == "second"
    assert second.seconds != first.seconds
