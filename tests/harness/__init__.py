"""Runs test functions on several ranks, with a hard deadline."""

from tests.harness.calls import only, run_calls
from tests.harness.notify import notify
from tests.harness.result import ANY, RanksFailed, Result
from tests.harness.run_ranks import run_ranks
from tests.harness.running import RunningRanks

__all__ = [
    "ANY",
    "RanksFailed",
    "Result",
    "RunningRanks",
    "notify",
    "only",
    "run_calls",
    "run_ranks",
]
