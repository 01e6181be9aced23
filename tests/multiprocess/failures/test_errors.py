"""Bad input is the same clear error on every rank, and loses nothing."""

import re

import pytest

from tests.harness import RanksFailed, run_ranks
from tests.harness.calls import run_calls
from tests.multiprocess.failures import rank_errors


@pytest.mark.quick
@pytest.mark.parametrize("hosts", [[0, 0, 0], [0, 1, 1]])
def test_mismatches(hosts):
    result = run_ranks(rank_errors.mismatches, 3, hosts=hosts, deadline=90)
    assert result.values[0] == result.values[1] == result.values[2]
    expected = {
        "shape": ("FailedPrecondition", "'e1'.*shape.*0, 2 have .4.*1 has .5"),
        "dtype": ("FailedPrecondition", "'e2'.*dtype.*float32.*1 has int32"),
        "op": ("FailedPrecondition", "reduce op.*Average.*rank 1 has Sum"),
        "kind": ("FailedPrecondition", "allreduce.*rank 1 has broadcast"),
        "root": ("FailedPrecondition", "root rank.*rank 1 has 1"),
        "scale": ("FailedPrecondition", "prescale.*rank 1 has 2"),
        "group": ("FailedPrecondition", "number of tensors.*rank 1 has 2"),
        "columns": ("FailedPrecondition", r"\[\*, 2\].*rank 1 has \[\*, 3\]"),
        "no such root": ("InvalidArgument", "root rank 99 is not a rank"),
    }
    for name, (kind, pattern) in expected.items():
        error, text = result.values[0][name]
        assert error == f"{kind}Error", name
        assert re.search(pattern, text), (name, text)


def test_the_cause_is_the_first_line_wherever_it_is_caught():
    result = run_calls(rank_errors, 2, [("texts",), ("not_ours",)])
    for texts in result("texts"):
        assert set(texts) >= {
            "eager",
            "function",
            "nested",
            "session",
            "lambda",
        }
        for place, text in texts.items():
            first = text.splitlines()[0]
            assert first.startswith("allreduce 'in/"), (place, text)
            assert "rank 1 has [5]" in first, (place, text)
            assert "{{" not in first
            # Of a program of XLA it is all that TensorFlow says.
            assert "[Op:" not in first or place == "jit"
        # Where in the program it was is still told, after it.
        for place in ("function", "nested", "session"):
            assert "rank_errors.py" in texts[place]
        assert "\n" not in texts["eager"]
    for text in result("not_ours"):
        assert text.startswith("indices[0] = 99 is not in [0, 10) (node Gather")
        assert "\n\nGraph execution error:\n" in text
        assert "rank_errors.py" in text


def test_different_names_are_recognised():
    result = run_ranks(
        rank_errors.different_names,
        3,
        env={"KERAS_RING_STALL_CHECK_TIME": "1"},
    )
    kind, text = result.values[0]
    assert result.values == [(kind, text)] * 3
    assert kind == "FailedPreconditionError"
    for rank in range(3):
        assert f"rank {rank} waits for allreduce 'mine/{rank}'" in text
    assert "the ranks use different sets of tensors" in text
    # After the time once, and not with the second report, at three times.
    assert result.ranks[0].stderr.count("Stalled: ") == 1


def test_different_numbers_of_steps_are_recognised():
    result = run_ranks(
        rank_errors.different_steps,
        3,
        env={"KERAS_RING_STALL_CHECK_TIME": "1"},
    )
    kind, text = result.values[0]
    assert result.values == [(kind, text)] * 3
    assert kind == "FailedPreconditionError"
    assert "ranks 0, 2 wait for allreduce 'grad'" in text
    assert "rank 1 waits for allreduce 'val_loss'" in text
    assert "Rank 1 has asked for some of these before" in text
    assert "different numbers of steps" in text


def test_a_stalled_tensor_is_reported_and_ended():
    result = run_ranks(
        rank_errors.stall_shutdown,
        3,
        env={
            "KERAS_RING_STALL_CHECK_TIME": "0.5",
            "KERAS_RING_STALL_SHUTDOWN_TIME": "4",
        },
    )
    kind, text = result.values[1]
    assert kind == "DeadlineExceededError"
    assert "'lonely'" in text and "missing rank 0" in text
    assert result.values[2] == result.values[1]
    # What the missing one does: in the error and in the report.
    doing = "Rank 0 is in no collective; the last that ended, allreduce 'step'"
    assert doing in text
    log = result.ranks[0].stderr
    assert "asked for by ranks 1-2, missing rank 0" in log
    assert doing in log
    # At 0.5 s, 1.5 s and 3.5 s: at growing intervals.
    assert 2 <= log.count("allreduce 'lonely': ") <= 3


def test_a_name_in_flight():
    kind, text = run_ranks(rank_errors.name_in_flight, 2).values[0]
    assert kind == "InvalidArgumentError"
    assert "allreduce 'w': this name is already in flight" in text


def test_before_init():
    first, (kind, text) = run_ranks(rank_errors.before_init, 1).values[0]
    assert first == "NotInitializedError"
    assert kind == "FailedPreconditionError"
    assert "keras_ring.init()" in text


def test_init_after_shutdown():
    assert run_ranks(rank_errors.init_again, 3).values == [[3.0] * 5] * 3


def test_a_system_without_threads_is_an_error_of_the_start():
    values = run_ranks(rank_errors.without_threads, 2).values
    for of_python, of_core in values:
        assert "The thread for log lines could not be started" in of_python
        assert "RESOURCE_EXHAUSTED: the thread kr-" in of_core
        for text in (of_python, of_core):
            assert "ulimit -u" in text


@pytest.mark.quick
def test_a_rank_that_ends_early():
    kind, text = run_ranks(rank_errors.leaves_early, 2).values[0]
    assert kind == "UnavailableError"
    assert "rank 1 has shut down" in text


def test_the_cause_of_an_early_end_reaches_the_others():
    with pytest.raises(RanksFailed) as failure:
        run_ranks(rank_errors.raises, 2)
    ranks = failure.value.result.ranks
    assert ranks[0].error_type == "UnavailableError"
    assert "rank 1 ended with RuntimeError: the disk is full" in ranks[0].error
    assert failure.value.result.first == 1


def test_ranks_with_different_settings_do_not_start():
    with pytest.raises(RanksFailed) as failure:
        run_ranks(rank_errors.different_settings, 3)
    for rank in failure.value.result.ranks:
        assert rank.error_type == "StartError"
        assert "KERAS_RING_CYCLE_TIME" in rank.error
        assert "rank 2" in rank.error
