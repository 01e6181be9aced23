"""Each sample is trained on once in an epoch, whoever is lost."""

import random
import re
import sys

import pytest

from tests.launcher.command import Command
from tests.multiprocess.elastic.samples import BATCH, EPOCHS, SAMPLES

pytestmark = pytest.mark.timeout(180)

_LINE = re.compile(r"was (\d): rank \d of (\d), ([.\d ]+), (\d+) in all")


def train(how, uneven, deaths, *, ranks=4):
    """Trains, and checks how often samples were trained on."""
    words = ("run", "--elastic", "-np", str(ranks), "--")
    program = (sys.executable, "-m", "tests.multiprocess.elastic.samples")
    texts = ",".join(f"{rank}:{after}" for rank, after in deaths.items())
    command = Command(*words, *program, how, uneven, texts)
    done = command.wait()
    print(how, uneven, deaths, done.stdout, done.stderr)
    assert command.wait_until_gone(5.0) == set()
    assert done.returncode == 0
    ends = _LINE.findall(done.stdout)
    assert len(ends) >= ranks - len(deaths)
    ((counts, total),) = {(counts, int(total)) for _, _, counts, total in ends}
    # In the last step of an epoch, where there is not a batch for each, and in
    # one more if it loses a rank.
    uneven_samples = (EPOCHS + len(deaths)) * (ranks - 1) * BATCH
    for epoch, text in enumerate(counts.split(), 1):
        least, most = map(int, text.split(".."))
        assert least >= epoch if uneven == "pad" else most <= epoch
    more = total - EPOCHS * SAMPLES
    assert 0 <= (more if uneven == "pad" else -more) <= uneven_samples


@pytest.mark.parametrize(
    ("how", "uneven", "deaths"),
    [
        ("fit", "pad", {0: 0.25, 3: 0.5}),
        ("loop", "drop", {2: 0.3}),
        ("batches", "pad", {1: 0.2, 0: 0.4, 3: 0.6}),
    ],
)
def test_each_sample_counts_once(how, uneven, deaths):
    train(how, uneven, deaths)


def test_is_a_job_like_others_if_nobody_is_killed():
    train("fit", "drop", {}, ranks=2)


@pytest.mark.long("faults")
@pytest.mark.parametrize("seed", range(16))
def test_deaths_at_any_time(seed):
    draw = random.Random(seed)
    victims = draw.sample(range(4), draw.randint(1, 3))
    deaths = {rank: round(draw.uniform(0, 1.0), 3) for rank in victims}
    how = draw.choice(["loop", "fit", "batches"])
    train(how, draw.choice(["pad", "drop"]), deaths)
