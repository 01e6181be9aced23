"""Programs that use tensors and processes as they like."""

import pytest

from tests.harness import run_ranks
from tests.multiprocess.zero_copy import rank_zero_copy_uses as uses

ON = {"KERAS_RING_ZERO_COPY": "1"}


def run(function, size=2, **settings):
    return run_ranks(
        function, size, **{"deadline": 120, "env": ON, **settings}
    ).values


def test_a_forked_child_keeps_what_its_parent_had():
    for seen, own, kept, total in run(uses.forked_child):
        assert seen == [True, True, True]
        assert own
        assert kept
        assert total


def test_a_forked_child_may_be_the_rank():
    assert run(uses.job_of_a_forked_child) == [b"copied", b"copied"]


def test_spawned_and_other_children():
    for spawned, seen, total in run(uses.other_processes):
        assert spawned == 1 << 20
        assert total
        for descriptors in seen:
            assert "-> " in descriptors
            assert "keras_ring" not in descriptors


def test_pipelines():
    run(uses.pipelines)


def test_arrays_outlive_their_tensors():
    assert run(uses.views) == [[True] * 16] * 2


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_is_the_same_bit_for_bit(jit_compile, tmp_path):
    values = {
        zero_copy: run(
            uses.fit,
            args=(jit_compile, str(tmp_path / zero_copy)),
            env={"KERAS_RING_ZERO_COPY": zero_copy},
            deadline=180,
        )
        for zero_copy in "01"
    }
    for (weights, said, copied), (same, again, direct) in zip(
        values["0"], values["1"], strict=True
    ):
        assert weights == same
        assert said == again
        assert copied
        assert not direct
    assert values["1"][0][0] == values["1"][1][0]
