"""Starts `--auto` in the Python programs of ranks, through `PYTHONPATH`."""

import os
from collections.abc import Mapping
from pathlib import Path

from keras_ring.protocol import auto_options

_PATH = "PYTHONPATH"
# The directory of the `sitecustomize` module, which Python imports at start.
_DIRECTORY = os.path.abspath(Path(__file__).parents[1] / "unchanged" / "hook")


def with_hook(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a rank, with the hook if `--auto` is on.

    Args:
        environment: The other environment variables of the rank. If this
            process is itself a rank, the hook of its own job is dropped.
    """
    result = dict(environment)
    before = environment.get(_PATH, "")
    # An empty entry is the working directory; an empty value has no entries.
    told = before.split(os.pathsep) if before else []
    words = [each for each in told if each != _DIRECTORY]
    if auto_options.is_on(environment):
        words.insert(0, _DIRECTORY)
    elif words == told:
        return result
    if words:
        result[_PATH] = os.pathsep.join(words)
    else:
        del result[_PATH]
    return result
