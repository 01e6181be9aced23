"""Has Python programs of ranks begin with `--auto`: by `PYTHONPATH`."""

import os
from collections.abc import Mapping
from pathlib import Path

from keras_ring._launch_protocol import auto_options

_PATH = "PYTHONPATH"
# What Python imports when it starts is in there: `sitecustomize`.
_DIRECTORY = os.path.abspath(Path(__file__).parents[1] / "_auto" / "hook")


def with_hook(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a rank, with the hook if `--auto` is on.

    Args:
        environment: All else that the rank is told. A hook of the job that
            this process is itself a rank of is dropped.
    """
    result = dict(environment)
    before = environment.get(_PATH, "")
    # An empty word is the working directory; an empty text has no words.
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
