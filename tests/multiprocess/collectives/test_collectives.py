"""Collectives one by one: modes, errors, groups. Values: test_programs.py."""

import psutil
import pytest

import keras_ring as kr
from tests.harness import run_ranks
from tests.multiprocess.collectives import collective_table, rank_collectives
from tests.tiers import few

pytestmark = pytest.mark.skipif(
    not kr.xla_built(), reason="not built for this TensorFlow"
)


@pytest.mark.parametrize("num_ranks", few([3, 2], "programs"))
def test_every_collective_in_every_mode(num_ranks):
    result = run_ranks(
        rank_collectives.forward_table, num_ranks, args=(True,), deadline=240
    )
    assert result.values == [collective_table.FORWARD] * num_ranks


# Those of one host, through shared memory, and of two, round a ring.
@pytest.mark.parametrize("hosts", [None, [0, 1, 1]])
def test_every_collective_in_every_mode_on_a_process_set(hosts):
    result = run_ranks(
        rank_collectives.forward_table,
        3,
        args=(True, [2, 0]),
        hosts=hosts,
        deadline=240,
    )
    expected = collective_table.ON_A_SET_FORWARD
    assert result.values == [expected, None, expected]


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_errors(num_ranks):
    result = run_ranks(rank_collectives.errors, num_ranks, deadline=120)
    found = result.values[0]
    last = num_ranks - 1
    rest = ", 0" * (num_ranks - 2)
    expected = {
        "negative": (
            "InvalidArgumentError",
            f"alltoall 'negative': rank {last} has splits [-1, 5{rest}], which",
        ),
        "too few": (
            "InvalidArgumentError",
            f"rank {last} has splits [4], but there must be one for each of "
            f"{num_ranks} ranks",
        ),
        "wrong sum": (
            "InvalidArgumentError",
            f"rank {last} has splits [1, 2{rest}], which must add up to its 4",
        ),
        "indivisible": (
            "InvalidArgumentError",
            f"rank {last} brings {2 * num_ranks + 1} rows, which cannot be",
        ),
        "shape": ("FailedPreconditionError", f"rank {last} has [5]"),
        "reduce op": ("FailedPreconditionError", f"rank {last} has Max"),
        "group": ("FailedPreconditionError", "on the number of tensors"),
    }
    alone = {
        "scalar allgather": ("ValueError", "Received a scalar"),
        "scalar alltoall": ("ValueError", "Received a scalar"),
        "scalar reducescatter": ("ValueError", "Received a scalar"),
        "complex allreduce": ("TypeError", "`allreduce` has no Average of com"),
        "complex reducescatter": ("TypeError", "`tf.math.real`"),
        "float splits": ("TypeError", "must be a vector of integers"),
        "flat splits": ("ValueError", "must be a vector with the number"),
        "no splits": ("ValueError", "of shape (0,)"),
        "no list": ("TypeError", "must be a list of tensors"),
    }
    for name, (kind, text) in {**expected, **alone}.items():
        assert found[name][0] == kind, (name, found[name])
        assert text in found[name][1], (name, found[name])
    assert found.keys() == {*expected, *alone}
    for name in expected:
        # The same on all ranks.
        assert len({values[name] for values in result.values}) == 1, name


def test_groups_splits_and_objects():
    calls = [
        ("groups_are_one_entry",),
        ("received_splits_have_the_type_of_splits",),
        ("splits_that_change", 60),
        ("objects",),
        ("one_comes_late", 2, 20, 0.02),
    ]
    result = run_ranks(rank_collectives.several, 3, args=(calls,), deadline=120)
    for entries, *empty in (values[0] for values in result.values):
        assert entries == 2
        assert empty == [[], [], []]
    *others, (times, late) = (values[-1] for values in result.values)
    # Of 20. A busy machine may pause another once.
    assert times >= 15
    assert late >= 15 * 0.015
    assert sum(by for _, by in others) < late / 2


def test_programs_without_eager_execution():
    result = run_ranks(rank_collectives.tensorflow_1, 2, deadline=120)
    for values, shared, number, texts in result.values:
        assert values == [6.0, 1]
        assert shared == [{"rank": 1, "turn": turn} for turn in range(3)]
        assert number == 7
        assert texts == ["", "x"]


def test_topology_is_found_out_when_the_graph_runs():
    result = run_ranks(rank_collectives.topology_of_a_later_job, 2)
    for rank, (first, (kind, text)) in enumerate(result.values):
        assert first == [rank, 2]
        assert kind == "FailedPreconditionError"
        assert "not initialized" in text


@pytest.mark.long("large")
def test_more_than_two_gib():
    needed = 12 << 30
    available = psutil.virtual_memory().available
    if available < needed:
        pytest.skip(
            f"needs {needed >> 30} GiB of free memory; there are "
            f"{available >> 30}"
        )
    result = run_ranks(
        rank_collectives.more_than_two_gib,
        2,
        args=((1 << 31) + 16,),
        deadline=240,
    )
    assert result.values == [[3] * 24] * 2
