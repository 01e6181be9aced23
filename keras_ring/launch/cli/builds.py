"""A check of the installation, for programs that were written for Horovod."""

from __future__ import annotations


def check_build() -> bool:
    """Prints versions and missing parts, as `keras-ring check` does.

    Returns:
        Boolean, whether a job can run here.
    """
    from keras_ring.launch.cli.check import run_check

    return run_check(as_json=False) == 0
