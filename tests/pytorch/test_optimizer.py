"""`DistributedOptimizer` of PyTorch trains as one process does."""

import pytest

from tests.harness import run_ranks
from tests.pytorch import rank_optimizer
from tests.tiers import few


@pytest.mark.parametrize(
    "function",
    [
        rank_optimizer.optimizers,
        rank_optimizer.ways_to_divide,
        rank_optimizer.ways_to_step,
        rank_optimizer.unused_parameters,
        rank_optimizer.rank_without_data,
        rank_optimizer.turned_on_later,
        rank_optimizer.two_optimizers,
        rank_optimizer.schedules_and_scaling,
        rank_optimizer.autocast,
        rank_optimizer.convolutions,
        rank_optimizer.buffers,
        rank_optimizer.checkpointed,
        rank_optimizer.embeddings,
        rank_optimizer.states,
    ],
)
@pytest.mark.parametrize("num_ranks", few([2, 3, 4], "programs", 1))
def test_ranks_train_as_one_process(function, num_ranks):
    result = run_ranks(function, num_ranks, fresh=True)
    assert result.values == [True] * num_ranks


def test_wrong_optimizers_are_told():
    first, second = run_ranks(
        rank_optimizer.wrong_optimizers, 2, fresh=True
    ).values
    wanted = {
        "type": ("TypeError", "Received: 'adam'"),
        "twice": ("ValueError", "already"),
        "names": ("ValueError", "same"),
        "missing": ("ValueError", "3 of 4"),
        "pairs": ("ValueError", "pairs of a name and a parameter"),
        "passes": ("ValueError", "Received: 0"),
        "groups": ("ValueError", "Received: -1"),
        "grouped twice": ("ValueError", "in one of `groups` only"),
        "predivide": ("ValueError", "2.0"),
        "ranks": ("ValueError", "0.weight.1"),
        "again": ("RuntimeError", "backward_passes_per_step"),
    }
    assert sorted(first) == sorted(wanted)
    for found in (first, second):
        for name, (kind, text) in wanted.items():
            assert found[name] is not None, name
            assert found[name][0] == kind, found[name]
            assert text in found[name][1], found[name]


@pytest.mark.parametrize(
    ("what", "texts"),
    [
        ("parameter", ("parameter '2.bias'", "of checksum")),
        ("rate", ("the learning rate of parameter group 0 is 0.1", "and 0.2")),
    ],
)
def test_a_rank_that_trains_another_model_is_told(what, texts):
    result = run_ranks(rank_optimizer.apart, 2, args=(what,), fresh=True)
    for step, text in result.values:
        assert step == 16
        assert "on rank 0" in text and "on rank 1" in text
        assert all(each in text for each in texts), text


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_optimizer_that_reduces_nothing_is_told(num_ranks):
    result = run_ranks(rank_optimizer.steps_alone, num_ranks, fresh=True)
    for said in result.values:
        texts = said.pop("plain")
        assert said == {"by_hand": [], "distributed": [], "few": []}
        assert len(texts) == num_ranks - 1
        for text in texts:
            assert "optimizer plain has made 2 steps with gradients of" in text
            assert "in a job of 2 ranks" in text


def test_a_lost_rank_ends_a_training():
    result = run_ranks(rank_optimizer.lost, 3, fresh=True, expect={1: -9})
    for rank in (0, 2):
        text, seconds = result.values[rank]
        assert "rank 1" in text
        assert seconds < 5
