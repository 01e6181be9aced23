"""Names the variables of the environment that somebody has set in vain."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from keras_ring._launch_protocol import auto_options, contract
from keras_ring._runtime import native

_PREFIX = "KERAS_RING_"
# The tests' own.
_TESTS = (f"{_PREFIX}TEST_", f"{_PREFIX}STRESS_")

# Those that Python alone reads.
_PYTHONS = (
    contract.ERROR_FILE,
    contract.JOB_KEY_FILE,
    contract.LOG_FORMAT,
    contract.PARENT_RANK,
    *auto_options.OPTIONS,
)

# Horovod's variable -> ours, where it is not of the same name.
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
    """Names the variables that somebody has set in vain, on one line.

    Args:
        environment: Of this process.
        known: The variables that count.

    Returns:
        Each with the one that may have been meant; `""` if there are none.
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
    """Returns the name that is nearest, in parentheses, or `""`."""
    # Without what all begin with: that alone would make any two alike.
    rests = [name.removeprefix(_PREFIX) for name in names]
    rest = misspelt.removeprefix(_PREFIX)
    close = difflib.get_close_matches(rest, rests, n=1)
    return f" (is it {_PREFIX}{close[0]}?)" if close else ""


def _instead(horovods: str, names: Iterable[str]) -> str:
    """Returns what to set in place of a variable of Horovod."""
    name = horovods.removeprefix("HOROVOD_")
    if _PREFIX + name in names:
        return f"use {_PREFIX}{name}"
    return f"use {_PREFIX}{_HOROVOD[name]}" if name in _HOROVOD else "none here"


def known_variables() -> list[str]:
    """Returns the variables that the runtime parses."""
    return [row[0] for row in native.core().describe_options()]
