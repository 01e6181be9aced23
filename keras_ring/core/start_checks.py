"""Finds environment variables that are set and have no effect."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from keras_ring.core import native
from keras_ring.protocol import auto_options, contract

_PREFIX = "KERAS_RING_"
# Prefixes of variables of the tests.
_TESTS = (f"{_PREFIX}TEST_", f"{_PREFIX}STRESS_")

# Variables that only Python code reads.
_PYTHONS = (
    contract.ERROR_FILE,
    contract.JOB_KEY_FILE,
    contract.LOG_FORMAT,
    contract.PARENT_RANK,
    contract.RESTART,
    *auto_options.OPTIONS,
)

# Our variables for those of Horovod that have another name.
_HOROVOD = {
    "STALL_CHECK_TIME_SECONDS": "STALL_CHECK_TIME",
    "STALL_CHECK_DISABLE": "STALL_CHECK_TIME=0",
    "STALL_SHUTDOWN_TIME_SECONDS": "STALL_SHUTDOWN_TIME",
    "GLOO_IFACE": "INTERFACE",
    "GLOO_TIMEOUT_SECONDS": "START_TIMEOUT",
    "HIERARCHICAL_ALLREDUCE": "COLLECTIVE",
    "HIERARCHICAL_ALLGATHER": "COLLECTIVE",
}


def ignored_variables(
    environment: Mapping[str, str], known: Iterable[str]
) -> str:
    """Returns a line that names the variables without effect.

    Args:
        environment: The environment variables of this process.
        known: Names of the variables that have an effect.

    Returns:
        String, each name with the one that may have been meant; `""` if there
        are none.
    """
    names = sorted({*known, *_PYTHONS})
    told = []
    for name in sorted(environment):
        if name.startswith("HOROVOD_"):
            told.append(f"{name} ({_instead(name, names)})")
        elif (
            name.startswith(_PREFIX)
            and name not in names
            and not name.startswith(_TESTS)
        ):
            told.append(name + _meant(name, names))
    return f"Variables without effect: {', '.join(told)}" if told else ""


def _meant(misspelt: str, names: Iterable[str]) -> str:
    """Returns the most similar name, in parentheses, or `""`."""
    # Compare without the common prefix, which would make any two similar.
    rests = [name.removeprefix(_PREFIX) for name in names]
    rest = misspelt.removeprefix(_PREFIX)
    close = difflib.get_close_matches(rest, rests, n=1)
    return f" (is it {_PREFIX}{close[0]}?)" if close else ""


def _instead(horovods: str, names: Iterable[str]) -> str:
    """Returns advice on what to set instead of a variable of Horovod."""
    name = horovods.removeprefix("HOROVOD_")
    if _PREFIX + name in names:
        return f"use {_PREFIX}{name}"
    return f"use {_PREFIX}{_HOROVOD[name]}" if name in _HOROVOD else "none here"


def known_variables() -> list[str]:
    """Returns the variables that the runtime parses."""
    return [row[0] for row in native.core().describe_options()]
