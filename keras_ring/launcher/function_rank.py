"""A rank that `keras_ring.run` started: calls the function it was given.

Run as a script, with the directory of the call as its argument. Before it
imports anything of the program it takes over the caller's `sys.path`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

# What is in the directory of a call.
PATHS = "paths.json"
CALL = "call.pickle"
RESULTS = "rank.*.result.pickle"


def result_path(directory: Path, rank: int) -> Path:
    """Returns where a rank leaves its result."""
    return directory / f"rank.{rank}.result.pickle"


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that nobody else can read, whole or not at all."""
    part = path.with_name(path.name + ".part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(part, flags, 0o600), "wb") as file:
        file.write(data)
    os.replace(part, path)


def _call(directory: Path) -> None:
    from keras_ring._launch_protocol import (
        auto_options,
        code_sources,
        contract,
        error_file,
    )

    error_file.install()
    if auto_options.is_on(os.environ):
        # Before it is unpickled: that imports what the function refers to.
        importlib.import_module("keras_ring.auto")
    rank = int(os.environ[contract.RANK])
    call = code_sources.decode((directory / CALL).read_bytes())
    function, args, kwargs = call.load()
    value: object = function(*args, **kwargs)
    try:
        data = code_sources.dumps(value, with_sources=False).encode()
    except Exception as error:
        raise TypeError(
            "`keras_ring.run` returns what the function returns on each rank, "
            f"so it must be possible to pickle it. On rank {rank} it is of "
            f"type {type(value).__name__}: {error}"
        ) from error
    write_private(result_path(directory, rank), data)


if __name__ == "__main__":
    _directory = Path(sys.argv[1])
    sys.path[:] = json.loads((_directory / PATHS).read_text())
    # As in a script that has no arguments.
    del sys.argv[1:]
    _call(_directory)
