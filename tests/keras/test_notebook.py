"""What cells of a notebook show of a training."""

import os
import re
import sys

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

pytestmark = [pytest.mark.timeout(200), pytest.mark.long("examples")]
TRAIN = """
def train():
    import keras
    import numpy as np
    import keras_ring as kr

    kr.init()
    x = np.linspace(-1, 1, 640, dtype="float32").reshape(160, 4)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    model.fit(
        *kr.data.shard((x, x.sum(1))),
        epochs=2,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.Progress(),
        ],
    )
"""
CELLS = (TRAIN, "train()", "import keras_ring as kr\nkr.run(train, np=2);")


def drawn(text):
    """Returns the lines that a reader sees in the end."""
    lines = []
    for line in re.sub(r"\x1b\[\d*m", "", text).split("\n"):
        seen, column = [], 0
        for sign in line:
            if sign in "\r\b":
                column = 0 if sign == "\r" else max(column - 1, 0)
                continue
            seen[column : column + 1] = sign
            column += 1
        lines.append("".join(seen).rstrip())
    return lines


def test_cells(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    # A kernel that sees it leaves what other processes print to its terminal.
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS]
    )
    nbclient.NotebookClient(book, timeout=150, kernel_name="python3").execute()
    _, alone, on_ranks = (
        "".join(
            output.text
            for output in cell.outputs
            if output.get("name") == "stdout"
        )
        for cell in book.cells
    )
    ours, rate, first, bar, second, another, pace, end = drawn(alone)
    assert ours.startswith("keras_ring: 1 rank on 1 host, ")
    assert "learning rate" in rate
    assert (first, second, end) == ("Epoch 1/2", "Epoch 2/2", "")
    for each in (bar, another):
        assert re.fullmatch(
            r"5/5 ━{20} \d+s \S+/step - [\d,.]+ samples/s - loss: \S+", each
        )
    assert "10 steps of " in pace
    # No control characters where nothing can be drawn over.
    assert not re.search(r"[\r\b\x1b]", on_ranks)
    shown = on_ranks.splitlines()
    assert "[0] keras_ring: data: 80 of 160 samples on each rank" in shown
    assert sum("samples/s - loss" in line for line in shown) == 2
    assert all(line.startswith("[0] ") for line in shown)
