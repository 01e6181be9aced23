"""Who becomes rank 0 in the midst of a `fit` writes and shows on."""

import csv
import random
import re
import sys

import keras
import pytest

from tests.launcher.command import Command
from tests.multiprocess.elastic.duties import EPOCHS

pytestmark = pytest.mark.timeout(180)

_LINE = re.compile(r"was (\d): rank (\d) of (\d), ([-. \de]+)")
_STEPS = 8  # of an epoch


def train(folder, deaths, *, ranks=3):
    """Trains; returns the lines of output and the losses of those left."""
    words = ("run", "--elastic", "-np", str(ranks), "--")
    program = (sys.executable, "-m", "tests.multiprocess.elastic.duties")
    command = Command(*words, *program, str(folder), *deaths)
    done = command.wait()
    print(done.stdout, done.stderr)
    assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0
    ends = _LINE.findall(done.stdout)
    assert len(ends) >= ranks - len(deaths)
    assert sorted(int(rank) for _, rank, *_ in ends) == list(range(len(ends)))
    (losses,) = {losses for *_, losses in ends}
    assert len(losses.split()) == EPOCHS
    return done.stdout.splitlines(), losses


def check_files(folder, *, doubled=()):
    """Checks what the callbacks have written.

    Args:
        folder: Path of the files.
        doubled: Epochs whose lines may be there twice, or not at all: rank 0
            was killed at their ends.
    """
    for epoch in range(1, EPOCHS + 1):
        keras.models.load_model(
            folder / f"ours-{epoch}.keras", custom_objects={"Dying": _Plain}
        )
        assert (folder / f"ours-{epoch}.keras.manifest.json").exists()
        if epoch - 1 not in doubled:
            assert (folder / f"keras-{epoch}.keras").exists()
    assert not (folder / "backup").exists()
    with (folder / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    check_epochs([int(row["epoch"]) for row in rows], doubled)
    mine = (folder / "mine.txt").read_text().splitlines()
    epochs = [line.split() for line in mine if line != "begin"]
    check_epochs([int(epoch) for epoch, *_ in epochs], doubled)
    # It has its model and its parameters.
    assert all(rest == [str(EPOCHS), "True"] for _, *rest in epochs)
    board = (folder / "board.txt").read_text().splitlines()
    check_epochs(
        [int(line.split()[1]) for line in board if "epoch_loss" in line][::2],
        doubled,
    )
    steps = [int(line.split()[1]) for line in board if "batch_loss" in line]
    assert steps == sorted(steps)
    assert steps[-1] == EPOCHS * _STEPS
    assert board[-2:] == ["closed train", "closed validation"]


def check_epochs(epochs, doubled):
    assert epochs == sorted(epochs)
    once = [epoch for epoch in epochs if epoch not in doubled]
    assert once == [e for e in range(EPOCHS) if e not in doubled]


class _Plain(keras.layers.Layer):
    def call(self, x):
        return x


@pytest.mark.parametrize(
    "deaths",
    [("epoch:2",), ("save:2",), ("validation:1", "begin:4")],
    ids="-".join,
)
def test_goes_on_with_what_rank_0_did(tmp_path, deaths):
    lines, _ = train(tmp_path, deaths)
    check_files(tmp_path)
    shown = [
        int(match.group(1))
        for match in (re.search(r"Epoch (\d)/", line) for line in lines)
        if match
    ]
    # The next rank 0 begins the line of its epoch again.
    assert sorted(set(shown)) == list(range(1, EPOCHS + 1))
    assert sum("val_loss:" in line for line in lines) == EPOCHS


def test_saves_the_same_models_if_nobody_is_killed(tmp_path):
    train(tmp_path, (), ranks=2)
    check_files(tmp_path)


@pytest.mark.long("faults")
@pytest.mark.parametrize("seed", range(10))
def test_rank_0_dies_at_any_time(tmp_path, seed):
    draw = random.Random(seed)
    deaths = [f"after:{draw.uniform(0, 2.5):.3f}" for _ in range(2)]
    train(tmp_path, deaths)
    check_files(tmp_path, doubled=range(EPOCHS))
