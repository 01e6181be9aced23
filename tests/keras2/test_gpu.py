"""Ops on a device under TensorFlow 2.15, where the fake one has the type "GPU".

In the other lane it cannot have it, for that TensorFlow was built for CUDA; so
this lane tests the kernels as they are registered.
"""

import pytest

from tests.gpu import rank_tensorflow
from tests.gpu.test_tensorflow import (  # noqa: F401
    run,
    test_a_cancelled_step_leaves_no_memory,
    test_all_dtypes,
    test_groups_scales_slices_and_derivatives,
    test_no_op_waits_for_its_tensors,
    test_results_are_where_the_tensors_were,
    test_training_has_the_bits_of_the_cpu,
)
from tests.keras2 import lane

pytestmark = pytest.mark.skipif(
    lane.MINOR > (2, 15),
    reason="needs TensorFlow 2.15, where the fake device is named GPU",
)


def test_ranks_of_a_host_get_different_gpus():
    """Two GPUs, and three ranks."""
    ranks = run(rank_tensorflow.pinned, 3).values
    half = int(0.45 * (8 << 10))
    assert ranks == [
        (0, 1, [6.0] * 3, [half]),
        (1, 1, [6.0] * 3, []),
        (0, 1, [6.0] * 3, [half]),
    ]


def test_it_is_too_late_once_there_is_a_tensor():
    for rank, told in enumerate(run(rank_tensorflow.pinned_too_late, 2).values):
        assert f"kr.pin_gpu() on rank {rank} comes too late" in told
