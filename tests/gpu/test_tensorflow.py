"""TensorFlow's ops on a device: a fake one, of TensorFlow's own kind.

Its streams are threads and its memory is none of the host's, so an op that does
not wait for its stream has wrong numbers, and one that reads its tensors on the
host ends the process.
"""

import signal

import pytest

from tests import fake_gpu, tiers
from tests.gpu import rank_tensorflow
from tests.harness import ANY, run_ranks

MODES = ["eager", "function", "graph"]


def run(function, num_ranks, *args, **options):
    seed = tiers.seed(1)
    print(f"seed {seed}")
    env = {**fake_gpu.environment(seed), **options.pop("env", {})}
    options.setdefault("deadline", 180)
    return run_ranks(function, num_ranks, args=args, env=env, **options)


@pytest.mark.parametrize("collective", ["auto", "staged"])
def test_all_dtypes(collective):
    calls = [
        *(("allreduce_table", mode) for mode in MODES[:2]),
        *(("gathers", mode) for mode in MODES),
        *(("broadcasts", mode) for mode in MODES),
    ]
    env = {"KERAS_RING_GPU_COLLECTIVE": collective}
    run(rank_tensorflow.tables, 2, calls, 1, env=env)


def test_groups_scales_slices_and_derivatives():
    calls = [
        *(("grouped", mode) for mode in MODES),
        ("scales_and_compression",),
        ("sparse",),
        ("grouped_slices",),
        ("scaled_integers", "function"),
        *(("gradients", mode) for mode in MODES),
    ]
    run(rank_tensorflow.tables, 3, calls, 2)


def test_random_orders_of_threads():
    run(rank_tensorflow.tables, 4, [("random_orders", 5, tiers.seed(1))], 1)


def test_results_are_where_the_tensors_were():
    device = f"{fake_gpu.device_type()}:1"
    on_device = ("allreduce", "allgather", "broadcast", "reducescatter")
    expected = {
        **dict.fromkeys((*on_device, "alltoall"), device),
        **dict.fromkeys(("splits", "rank_op"), "CPU:0"),
    }
    assert run(rank_tensorflow.where, 2).values == [expected] * 2


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_training_has_the_bits_of_the_cpu(num_ranks):
    steps = tiers.amount(200, 1000)
    for equal, losses, losses_there, grown in run(
        rank_tensorflow.training, num_ranks, steps
    ).values:
        assert equal
        assert losses == losses_there
        assert losses[1] < losses[0]
        assert grown == 0


def test_no_op_waits_for_its_tensors():
    assert run(rank_tensorflow.asked_for_at_once, 2, 6, 150).values == [6, 6]


def test_a_cancelled_step_leaves_no_memory():
    assert run(rank_tensorflow.cancelled_steps, 2).values == [0, 0]


def test_a_lost_rank_is_an_error():
    def kill(ranks):
        ranks.wait_for(1, "in flight")
        ranks.send(1, signal.SIGKILL)

    result = run(
        rank_tensorflow.lost_rank,
        3,
        expect={1: ANY},
        on_start=kill,
        deadline=60,
    )
    for rank in (0, 2):
        assert "lost rank 1" in result.ranks[rank].value


@pytest.mark.long("large")
def test_a_result_that_does_not_fit():
    for error in run(rank_tensorflow.no_memory, 2).values:
        assert "no memory for a result of shape" in error
