"""One timeline of ranks on several hosts."""

import json
import re
import sys

import pytest

from keras_ring.observe.timeline.merge import read
from tests.keras import counted_fit, counted_timelines
from tests.lab.lab import ROOT

pytestmark = pytest.mark.timeout(150, func_only=True)
STEPS = str(ROOT / "tests" / "hosts" / "rank_steps.py")

EXECUTE, STEP = 2, 16


def test_a_timeline_of_all_hosts_on_one_clock(lab, jobs, tmp_path):
    path = tmp_path / "t.json.gz"
    done = jobs.run(
        lab.run(
            "kr-h0:2,kr-h1:2",
            *("--timeline", str(path), "--", sys.executable, STEPS),
        ),
        limit=120,
    )
    assert done.returncode == 0, done.stderr
    assert f"timeline in {path}" in done.stderr
    ranks = read(path).ranks
    assert [rank.host for rank in ranks] == [*["kr-h0"] * 2, *["kr-h1"] * 2]
    tags = []
    for rank in ranks:
        spans = rank.spans
        steps = spans[spans["phase"] == STEP]
        assert steps["value"].tolist() == [*range(1, counted_fit.STEPS + 1)]
        buckets = spans[(spans["phase"] == EXECUTE) & (spans["value"] > 8)]
        tags.append(set(buckets["tag"]))
        # The hosts of the lab have one clock in truth.
        assert rank.error_ns is not None
        assert abs(rank.offset_ns) <= rank.error_ns < 20e6
    assert ranks[0].offset_ns == 0
    assert ranks[0].error_ns == 0
    assert tags[0] == tags[1] == tags[2] == tags[3]
    by_rank = dict(re.findall(r"counted (\d) (\[.*\])", done.stdout))
    counted_timelines.check(
        path, [json.loads(by_rank[str(rank)]) for rank in range(4)]
    )
