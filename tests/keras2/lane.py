"""Which TensorFlow these tests run on."""

import importlib.metadata

from tests.harness.run_ranks import run_ranks


def _version():
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise AssertionError("TensorFlow is not installed")


MINOR = tuple(int(part) for part in _version().split(".")[:2])
HAS_ESTIMATOR = MINOR <= (2, 15)
# Makes `tf.keras` that of Keras 2 where it would not be.
ENVIRONMENT = {} if MINOR <= (2, 15) else {"TF_USE_LEGACY_KERAS": "1"}


def run_calls(module, num_ranks, calls, deadline=600, **options):
    """Makes several calls in one job: starting ranks takes longer than most.

    Args:
        module: A module with a function `together`.
        num_ranks: Integer.
        calls: A list of (name of a function in the module, its arguments).
        deadline: Seconds.
        **options: Of `run_ranks`.

    Returns:
        A function of a call, that returns what each rank returned.
    """
    result = run_ranks(
        module.together,
        num_ranks,
        args=(calls,),
        deadline=deadline,
        env=ENVIRONMENT,
        **options,
    )
    values = [rank.value for rank in result.ranks]
    return lambda name, *arguments: [
        value[f"{name}{arguments}"] for value in values
    ]
