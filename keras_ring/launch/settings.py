"""Checks the `KERAS_RING_*` variables before any rank is started.

Each rank parses them again. This check first turns one mistake into one line
instead of one error per rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from keras_ring.core import native
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import auto_options, contract

# Types whose values may be valid on another host and invalid on this one.
_OF_A_HOST = ("text", "interface", "file")


def check_settings(environment: Mapping[str, str]) -> None:
    """Raises a UsageError for the first variable that does not parse.

    Args:
        environment: The environment variables that the ranks will get.
    """
    core = native.core()
    given = {
        name: environment[name]
        for name, kind, *_ in core.describe_options()
        if kind not in _OF_A_HOST
        and name not in contract.LAUNCHER_OWNED
        and environment.get(name)
    }
    try:
        core.check_settings(given)
    except core.StatusError as error:
        raise UsageError(error.args[1]) from None
    if wrong := auto_options.problem(environment):
        raise UsageError(wrong)
