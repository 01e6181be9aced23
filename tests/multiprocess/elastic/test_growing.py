"""Ranks leave and join a training of `kr.elastic.run`."""

import random
import re
import sys

import pytest

from tests.launcher.command import Command
from tests.multiprocess.elastic.samples import require_each_epoch

pytestmark = pytest.mark.timeout(240)

_LINE = re.compile(
    r"was (\d+): rank \d of (\d), (\d+) starts of ([\d,]+) ranks,"
    r" (\d+) epochs, (\d+) in all, counts ([.\d ]+)"
)


def train(how, deaths, *options, epochs, ranks=3):
    """Trains, and checks who came in and how often samples were trained on."""
    words = ("run", "-np", str(ranks), "--max-np", str(ranks), "--")
    program = (sys.executable, "-m", "tests.multiprocess.elastic.growing")
    texts = ",".join(f"{number}:{after}" for number, after in deaths.items())
    options = (*options, f"--epochs={epochs}")
    command = Command(*words, *program, how, texts, *options)
    done = command.wait()
    print(how, deaths, done.stdout, done.stderr)
    assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0
    ends = [match.groups() for match in _LINE.finditer(done.stdout)]
    joined = re.findall(r"ranks? ([\d ,and]+) ha(?:s|ve) joined", done.stderr)
    assert joined
    # Each is in the training that the others are in.
    ((size, sizes, num_epochs, total, counts),) = {
        (size, sizes, num_epochs, total, counts)
        for _, size, _, sizes, num_epochs, total, counts in ends
    }
    assert len(ends) == int(size)
    assert max(int(number) for number, *_ in ends) >= ranks
    assert int(num_epochs) == epochs
    # In the last step of an epoch, where there is not a batch for each, and in
    # one more if it loses a rank.
    most_uneven = (epochs + len(deaths)) * (ranks - 1)
    require_each_epoch(counts, int(total), epochs, most_uneven)
    return sizes


def test_others_come_in_the_place_of_those_that_are_lost():
    sizes = train("loop", {0: 0.5, 2: 1.0}, epochs=50)
    assert sizes.startswith("3,2,")
    assert sizes.endswith(",3")


def test_others_come_into_a_fit(tmp_path):
    log = tmp_path / "log.csv"
    # The second to write it is the rank that becomes rank 0.
    train("fit", {1: 0.5, 0: 1.5}, f"--log={log}", epochs=40)
    rows = log.read_text().splitlines()
    assert rows[0].startswith("epoch,")
    epochs = [int(row.partition(",")[0]) for row in rows[1:]]
    assert epochs == list(range(40))


@pytest.mark.long("faults")
@pytest.mark.parametrize("seed", range(8))
def test_ranks_leave_and_join_at_any_time(seed):
    draw = random.Random(seed)
    # One of the first is left, for others may take longer to come.
    victims = [
        *draw.sample(range(3), draw.randint(1, 2)),
        *draw.sample(range(3, 6), draw.randint(0, 2)),
    ]
    deaths = {number: round(draw.uniform(0, 8.0), 3) for number in victims}
    train(draw.choice(["loop", "fit", "tape"]), deaths, epochs=60)
