"""Ranks start programs that find the variables of a rank, and go on."""

from pathlib import Path

from tests.harness import run_ranks

PROGRAM = Path(__file__).with_name("run_children.py")
EARLY = Path(__file__).with_name("run_early_children.py")


def test_what_a_rank_starts_is_no_rank():
    result = run_ranks(PROGRAM, 2, deadline=120)
    for rank in result.ranks:
        print(rank.stdout, rank.stderr)
        assert "all is well" in rank.stdout


def test_what_a_rank_starts_before_init_is_told():
    result = run_ranks(EARLY, 2, deadline=120)
    for rank in result.ranks:
        told = rank.stderr.count("so it would take itself for that rank. Call")
        assert (rank.stdout.count("exit code 1"), told) == (2, 2)
        assert "sum [2.0, 2.0, 2.0]" in rank.stdout
