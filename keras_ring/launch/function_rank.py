"""The script of a rank that `keras_ring.run` started: calls its function.

Its argument is the directory of the call. It takes over the caller's `sys.path`
before it imports anything of the program.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

# Names of the files in the directory of a call.
PATHS = "paths.json"
CALL = "call.pickle"
RESULTS = "rank.*.result.pickle"


def result_path(directory: Path, rank: int) -> Path:
    """Returns the path of the file in which a rank leaves its result."""
    return directory / f"rank.{rank}.result.pickle"


def write_private(path: Path, data: bytes) -> None:
    """Writes a file for this user only, completely or not at all."""
    part = path.with_name(path.name + ".part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(part, flags, 0o600), "wb") as file:
        file.write(data)
    os.replace(part, path)


def _call(directory: Path) -> None:
    from keras_ring.protocol import (
        auto_options,
        code_sources,
        contract,
        error_file,
    )

    error_file.install()
    if auto_options.is_on(os.environ):
        # Before unpickling, which imports the modules of the function.
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
    # `sys.argv` is then that of a script without arguments.
    del sys.argv[1:]
    _call(_directory)
