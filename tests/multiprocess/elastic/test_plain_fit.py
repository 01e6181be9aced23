"""Ranks leave and join a `fit` of a program that knows nothing of it."""

import random
import re
import sys

import pytest

from tests.launcher.command import Command
from tests.multiprocess.elastic.samples import require_each_epoch

pytestmark = pytest.mark.timeout(240)

_LINE = re.compile(
    r"was (\d+): rank \d of (\d), sizes ([\d,]+), (\d+) epochs,"
    r" (\d+) in all, counts ([.\d ]+)"
)


def fit(deaths, *options, epochs, ranks=3, first=3):
    """Trains, and checks who came in and how often samples were trained on.

    Args:
        deaths: Seconds of training by process, after which it is killed.
        *options: Strings for the program.
        epochs: Integer.
        ranks: Integer, how many ranks there are to be.
        first: Integer, how many there are at first.

    Returns:
        The numbers of ranks of the job, as a string.
    """
    words = ("run", "-np", str(first), "--max-np", str(ranks), "--")
    program = (sys.executable, "-m", "tests.multiprocess.elastic.plain_fit")
    texts = ",".join(f"{number}:{after}" for number, after in deaths.items())
    options = (*options, f"--epochs={epochs}")
    command = Command(*words, *program, texts, *options)
    done = command.wait()
    print(deaths, done.stdout, done.stderr)
    assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0
    ends = [match.groups() for match in _LINE.finditer(done.stdout)]
    # Each is in the training that the others are in.
    ((size, sizes, num_epochs, total, counts),) = {each[1:] for each in ends}
    assert len(ends) == int(size)
    assert max(int(number) for number, *_ in ends) >= first
    assert int(num_epochs) == epochs
    # In the last step of an epoch, where there is not a batch for each, and in
    # one more if it loses a rank.
    most_uneven = (epochs + len(deaths)) * (ranks - 1)
    require_each_epoch(counts, int(total), epochs, most_uneven)
    return sizes


def test_others_come_in_the_place_of_those_that_are_lost(tmp_path):
    log = tmp_path / "log.csv"
    # The second to write it is the rank that becomes rank 0.
    sizes = fit({1: 0.5, 0: 2.0}, f"--log={log}", epochs=40)
    assert sizes.startswith("3,2,")
    assert sizes.endswith(",3")
    rows = log.read_text().splitlines()
    assert rows[0].startswith("epoch,")
    epochs = [int(row.partition(",")[0]) for row in rows[1:]]
    assert epochs == list(range(40))


@pytest.mark.long("faults")
def test_others_come_beside_the_first_ranks():
    sizes = fit({}, epochs=40, first=1)
    assert sizes in ("1,2,3", "1,3")


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
    fit(deaths, epochs=60)
