"""Process sets: how they come and go, fail and train.

Their values in every mode are in test_collectives.py, test_gradients.py and
test_programs.py.
"""

import os
import signal

import pytest

import keras_ring as kr
from tests.harness import RanksFailed, codes, run_ranks
from tests.multiprocess.process_sets import rank_process_sets
from tests.tiers import few

# Seconds; see test_failure.py.
LIMIT = 1.5 * float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))

HOSTS = [None, [0, 1, 1]]


@pytest.mark.parametrize("hosts", HOSTS)
def test_changes(hosts):
    result = run_ranks(rank_process_sets.changes, 3, hosts=hosts, deadline=90)
    found = result.values[0]
    for other in result.values[1:]:
        for name, outcome in found.items():
            assert other[name] == outcome, name
    assert found.pop("numbers") == (1, 2)
    assert found.pop("number after") == 3
    expected = {
        "not added": "is not part of this job",
        "again": "process set [0, 2]: exists already, as process set 1",
        "all": "all ranks of the job are the global process set",
        "beyond": "process set [0, 3]: the ranks of this job are 0 to 2",
        "twice": "[1, 1]: a rank is in it more than once",
        "none": "at least one rank",
        "different": "rank 1 calls add_process_set([0, 1]); ranks 0, 2 call "
        "add_process_set([0])",
        "add and remove": "ranks 1-2 call add_process_set([0]); rank 0 calls "
        "remove_process_set(2)",
        "the job": "cannot be removed",
        "unknown": "was not added, or has been removed",
        "removed": "is not part of this job",
        "removed again": "was not added, or has been removed",
    }
    kind, text = found.pop("no such id")
    assert kind == "FailedPreconditionError"
    assert "process set 99 does not exist" in text
    for name, text in expected.items():
        assert found[name][0] == "ValueError", (name, found[name])
        assert text in found[name][1], (name, found[name])
    assert found.keys() == expected.keys()


def test_sets_from_the_beginning():
    result = run_ranks(rank_process_sets.static_sets, 3, deadline=90)
    for totals, (kind, text), again in result.values:
        assert totals == [3, 3]
        assert kind == "ValueError"
        assert "[0, 1]: is among these more than once" in text
        assert again[0] == "ValueError"
        assert "Received: [[0, 2]]; present are [[0, 1], [2]]" in again[1]


@pytest.mark.parametrize("hosts", HOSTS)
def test_several_at_once(hosts):
    result = run_ranks(
        rank_process_sets.several_at_once, 3, hosts=hosts, deadline=90
    )
    for error, _ in result.values:
        assert error == result.values[0][0]
        assert error[0] == "ValueError"
        assert "[0, 3]: the ranks of this job are 0 to 2" in error[1]
    assert [totals for _, totals in result.values] == [
        [2.0, None, None],
        [2.0, None, 2.0],
        [None, 1.0, 2.0],
    ]


def test_a_function_of_an_earlier_job_meets_no_other_set():
    values = run_ranks(
        rank_process_sets.traced_in_an_earlier_job, 3, deadline=90
    ).values
    assert [results for results, _ in values] == [
        [3.0, 3.0, 4.0, 3.0],
        [3.0, 3.0, 3.0],
        [3.0, 4.0, 3.0],
    ]
    for _, (kind, text) in values:
        assert kind == "FailedPreconditionError"
        assert "process set 1 was of a job that is over" in text
        assert "trace anew" in text


def test_sets_of_many_ranks_from_the_beginning():
    values = run_ranks(rank_process_sets.too_many_ranks, 2, deadline=90).values
    for (kind, text), differ in values:
        assert kind == "ValueError"
        assert "of 20000 ranks: the ranks of this job are 0 to 1" in text
        assert "'process_sets': rank 0 has '[[0, 1, 2," in differ
        assert len(differ) < 16384


def test_different_sets_from_the_beginning():
    with pytest.raises(RanksFailed) as failure:
        run_ranks(rank_process_sets.different_static_sets, 3)
    for rank in failure.value.result.ranks:
        assert rank.error_type == "StartError"
        assert "'process_sets'" in rank.error
        assert "rank 2 has '[[0, 1]]'" in rank.error


@pytest.mark.skipif(not kr.xla_built(), reason="compiles a function")
@pytest.mark.parametrize("hosts", HOSTS)
def test_errors_name_ranks_of_the_job(hosts):
    result = run_ranks(
        rank_process_sets.errors_name_ranks_of_the_job,
        3,
        hosts=hosts,
        deadline=120,
    )
    unknown, found, same = result.values
    assert found == same
    for name, (kind, text) in unknown.items():
        assert kind == "InvalidArgumentError", (name, kind, text)
        assert "rank 0 is not a member of process set 1 (ranks 1-2)" in text
    assert len(unknown) == 9
    expected = {
        "dtype": ("FailedPreconditionError", "rank 1 has float32; rank 2 has"),
        "root": ("InvalidArgumentError", "root rank 0 is not a member of proc"),
        "splits": ("InvalidArgumentError", "rank 2 has splits [3, -1]"),
        "object root": ("ValueError", "ranks [1, 2] of the process set"),
    }
    for name, (kind, text) in expected.items():
        assert found[name][0] == kind, (name, found[name])
        assert text in found[name][1], (name, found[name])


@pytest.mark.parametrize("hosts", HOSTS)
def test_a_set_does_not_wait_for_another(hosts, tmp_path):
    result = run_ranks(
        rank_process_sets.independence,
        3,
        args=(str(tmp_path / "go"),),
        hosts=hosts,
        deadline=90,
    )
    assert result.values == [2.0] * 3


def test_all_sets_of_a_rank_at_once():
    result = run_ranks(
        rank_process_sets.many_threads, 3, args=(100,), deadline=120
    )
    assert result.values == [[]] * 3


@pytest.mark.parametrize("hosts", HOSTS)
def test_nothing_is_left_of_removed_sets(hosts):
    result = run_ranks(
        rank_process_sets.again_and_again,
        3,
        args=(100,),
        hosts=hosts,
        deadline=300,
    )
    for rank, before, after in result.values:
        print(f"rank {rank}: {before} {after}")
        assert after["threads"] <= before["threads"]
        assert after["descriptors"] <= before["descriptors"]
        # The allocator may split an area or two of its own.
        assert after["mappings"] <= before["mappings"] + 10
        # For 200 sets.
        assert after["rss_kib"] - before["rss_kib"] < 3 << 10


def test_memory_of_sets():
    result = run_ranks(
        rank_process_sets.memory_of_sets, 4, args=(8,), deadline=120
    )
    for rank, (count, before, idle, used) in enumerate(result.values):
        print(f"rank {rank}, {count} sets: {before} {idle} {used}")
        assert count == 8
        assert idle["rss_kib"] - before["rss_kib"] < 8 << 10
        # A few MiB for each that is used: its slots, and pages of others.
        assert used["rss_kib"] - before["rss_kib"] < 8 * (20 << 10)


def test_threads_have_names():
    members, same, other = run_ranks(
        rank_process_sets.threads_have_names, 3
    ).values
    assert members == same
    assert {"kr-loop", "kr-exec", "kr-loop/1", "kr-exec/1"} <= set(members)
    assert {"kr-loop/1", "kr-exec/1"}.isdisjoint(other)


@pytest.mark.alone
@pytest.mark.parametrize("where", ["set", "job"])
@pytest.mark.parametrize("hosts", few([None, [0, 0, 1, 1]], "faults"))
def test_a_rank_that_dies_in_a_set_is_lost_to_all(where, hosts):
    killed_at = []

    def kill(running):
        for rank in range(4):
            running.wait_for(rank, "training", timeout=60)
        killed_at.append(running.send(2, signal.SIGKILL))

    result = run_ranks(
        rank_process_sets.train_in_set_until_killed,
        4,
        args=(where,),
        expect={
            **dict.fromkeys(range(4), codes.TEST_FAILURE),
            2: -signal.SIGKILL,
        },
        on_start=kill,
        hosts=hosts,
        deadline=120,
    )
    for rank in (0, 1, 3):
        stderr = result.ranks[rank].stderr
        assert "UnavailableError" in stderr
        assert "lost rank 2 (host" in stderr
        assert result.ranks[rank].end_time - killed_at[0] < LIMIT


def test_a_rank_that_leaves_does_not_end_the_sets_of_others(tmp_path):
    result = run_ranks(
        rank_process_sets.leave_while_others_go_on,
        3,
        args=(str(tmp_path / "left"),),
        deadline=90,
    )
    for kind, text, total, (error, _) in result.values[:2]:
        assert kind == "UnavailableError"
        assert "rank 2 has shut down" in text
        assert total == 2.0
        assert error == "UnavailableError"


def test_objects_and_variables():
    none, first, second = run_ranks(
        rank_process_sets.objects_and_variables, 3
    ).values
    assert none is None
    assert first == second
    assert first[:5] == (
        {"rank": 2},
        ["rank 1", "rank 2"],
        1,
        2.0,
        1.0,
    )
    kind, text = first[5]
    assert kind == "ValueError"
    assert "Rank 1 has 1, rank 2 has 1" in text


@pytest.mark.skipif(not kr.xla_built(), reason="one of the sets compiles")
def test_each_set_trains_a_model_of_its_own():
    values = run_ranks(rank_process_sets.training, 4, deadline=180).values
    assert values[0][:2] == values[2][:2]
    assert values[1][:2] == values[3][:2]
    assert values[0][0] != values[1][0]
    assert [gradient for _, _, gradient, _ in values] == [
        [1.0, 1.0],
        [2.0, 2.0],
    ] * 2
    assert values[0][3] == [3.0, 0.0, 1.0, 0.0]
    assert values[1][3] == [2.0, 1.0, 0.0, 1.0]
