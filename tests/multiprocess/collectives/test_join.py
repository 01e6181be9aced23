"""Ranks that run out of data before others do."""

import pytest

import keras_ring as kr
from tests.harness import run_ranks
from tests.multiprocess.collectives import rank_join
from tests.tiers import few

MODES = ["eager", "function", *(["compiled"] if kr.xla_built() else [])]


@pytest.mark.parametrize(
    "num_ranks, hosts", [(1, None), (3, None), (3, [0, 1, 1])]
)
def test_training_on_parts_of_any_length(num_ranks, hosts):
    run_ranks(
        rank_join.several,
        num_ranks,
        args=([("training", mode) for mode in MODES],),
        hosts=hosts,
        deadline=180,
    )


@pytest.mark.parametrize(
    "num_ranks, hosts",
    few([(2, None), (4, [0, 0, 1, 1]), (4, None)], "programs", 2),
)
def test_every_collective_without_a_rank(num_ranks, hosts):
    result = run_ranks(
        rank_join.operations,
        num_ranks,
        args=(300_000,),
        hosts=hosts,
        deadline=180,
    )
    expected = {
        "from it": "the root, rank 1, has joined",
        "parts": "reducescatter 'parts': rank 1 has joined",
        "rows for it": "has 2 rows for rank 1, which has joined",
        "new": "the root, rank 1, has joined",
        "set": "add_process_set or remove_process_set needs all",
    }
    assert result.values[1] == {}
    for rank, errors in enumerate(result.values):
        if rank == 1:
            continue
        for name, (kind, text) in errors.items():
            of_set = name.startswith("set")
            wanted = "ValueError" if of_set else "FailedPreconditionError"
            assert kind == wanted, (name, text)
            assert expected[name[:-2]] in text, (name, text)
        assert len(errors) == 2 * len(expected)
        assert errors == result.values[0]


def test_all_join_at_once_and_again():
    values = run_ranks(rank_join.all_at_once, 3, deadline=60).values
    assert values == [values[0]] * 3
    assert set(values[0]) <= {0, 1, 2}


def test_a_rank_that_has_joined_has_no_collectives(tmp_path):
    error, none = run_ranks(
        rank_join.other_threads, 2, args=(str(tmp_path / "told"),), deadline=90
    ).values
    assert none is None
    assert "allreduce 'thread': this rank has called join()" in error


def test_a_rank_that_dies_ends_the_joins():
    result = run_ranks(
        rank_join.while_a_rank_dies, 3, expect={1: 7}, deadline=90
    )
    for rank in (0, 2):
        assert result.values[rank] < 10


def test_a_rank_that_leaves_ends_the_joins():
    values = run_ranks(rank_join.while_a_rank_shuts_down, 3, deadline=60).values
    assert values[1] == "left"
    assert "rank 1 has shut down" in values[0]
    assert "rank 1 has shut down" in values[2]
