"""Ops on a device under TensorFlow 2.15, where the fake one has the type "GPU".

In the other lane it cannot have it, for that TensorFlow was built for CUDA; so
this lane tests the kernels as they are registered.
"""

from tests.gpu.test_tensorflow import (  # noqa: F401
    test_a_cancelled_step_leaves_no_memory,
    test_all_dtypes,
    test_groups_scales_slices_and_derivatives,
    test_no_op_waits_for_its_tensors,
    test_results_are_where_the_tensors_were,
    test_training_has_the_bits_of_the_cpu,
)
