"""Which TensorFlow these tests run on."""

import importlib.metadata

from tests.harness import run_calls as calls_in_one_job


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
    """As `calls.run_calls`, with the Keras of this lane."""
    return calls_in_one_job(
        module,
        num_ranks,
        calls,
        deadline=deadline,
        env=ENVIRONMENT,
        **options,
    )
