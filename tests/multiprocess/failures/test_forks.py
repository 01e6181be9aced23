"""Ranks fork data workers and other processes, and go on."""

from pathlib import Path

import pytest

from tests.harness import run_ranks
from tests.tiers import few

PROGRAM = Path(__file__).with_name("run_forks.py")


# Sharing memory, and a host each: then only TCP connects them.
@pytest.mark.parametrize("hosts", few([None, [0, 1]], "stress", keep=1))
def test_a_rank_and_its_forks(hosts):
    result = run_ranks(PROGRAM, 2, hosts=hosts, deadline=120)
    for rank in result.ranks:
        print(rank.stdout, rank.stderr)
        assert "all is well" in rank.stdout
        # The children are many.
        warnings = rank.stderr.count("they were not copied for it")
        assert warnings == 1, rank.stderr
