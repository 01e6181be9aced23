"""What `fit` and `keras-ring report` say of one run."""

import re

import pytest
import rank_told

from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.verdict import verdict
from keras_ring.observe.timeline.merge import read
from keras_ring.observe.words import CAUSES
from tests.harness import run_ranks

pytestmark = pytest.mark.timeout(300)


def _shares(text):
    """Returns both percentages of a sentence on communication."""
    return [float(share) for share in re.findall(r"([\d.]+)%", text)]


def test_fit_and_report_tell_the_same(tmp_path):
    path = tmp_path / "timeline.json"
    result = run_ranks(rank_told.fit, 2, args=(str(path),), deadline=150)
    communication, cause = result.ranks[0].value[-2:]
    found = verdict(analyse(read(path)))
    print(communication, cause, *found, sep="\n")
    # Each epoch ends with an exchange, which is not hidden behind a step.
    assert _shares(communication) == pytest.approx(_shares(found[2]), abs=3)
    named = CAUSES["data"]
    assert re.match(rf".* waited for rank 1, .*: {named} \(data\)\.", cause)
    assert re.match(rf"Rank 1 was last .*: it waits for {named} ", found[0])
