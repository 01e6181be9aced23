"""Ranks that do different things are told so, and what each of them does."""

from tests.harness import run_ranks
from tests.multiprocess.failures import rank_desync

ELSEWHERE = (
    "either the ranks have different numbers of steps, or some are in an "
    "evaluation, a callback or a branch that others are not in."
)


def test_rank_1_goes_another_way():
    result = run_ranks(
        rank_desync.trainings,
        2,
        env={"KERAS_RING_STALL_CHECK_TIME": "1"},
        deadline=120,
    )
    for errors in result.values:
        for name, waits, metrics in (
            ("steps", "allreduce 'gradient/", "metrics"),
            # With which a `fit` begins.
            ("evaluation", "allgather 'fit/files'", "evaluation/metrics"),
        ):
            error = errors[name]
            assert error.startswith("FailedPreconditionError"), (name, error)
            assert f"rank 0 waits for {waits}" in error
            assert f"rank 1 waits for grouped allreduce '{metrics}/" in error
            assert ELSEWHERE in error
        assert errors["models"].startswith("ConsistencyError"), errors
        assert "Rank 0 has 4, rank 1 has 6" in errors["models"]
        assert "/last/kernel of float32 (4, 1), rank 1 has" in errors["models"]
        sets = errors["sets"]
        assert "/extra'. Rank 1 has asked for some of these" in sets
        assert "Rank 0 has not asked for others of these lately" in sets
        assert "the ranks may also use different sets of tensors" in sets
        eager = errors["eager_evaluation"]
        assert "rank 1 waits for allreduce 'eager/accuracy'" in eager
        assert ELSEWHERE in eager
        # It came back, and nothing was lost.
        assert not errors["evaluation_that_ends"]
    log = result.ranks[0].stderr
    report = log.split("end of evaluation\n")[1].split(
        "end of evaluation_that"
    )[0]
    assert "missing rank 1" in report
    assert (
        "Rank 1 has asked for some of these before, and is in no collective "
        "now: it may be in an evaluation"
    ) in report
