"""Calls a test function in one rank; started by path.

Reads `call.json`, written by `run_ranks`, and leaves `result.RANK.pickle`
beside it: `{"value": ...}`, or the exception as text.
"""

import faulthandler
import importlib
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any


def _write(directory: Path, record: dict[str, Any]) -> None:
    rank = os.environ["KERAS_RING_RANK"]
    part = directory / f"result.{rank}.part"
    part.write_bytes(pickle.dumps(record))
    part.replace(directory / f"result.{rank}.pickle")


def _find(name: str) -> Any:
    module, _, attributes = name.partition(":")
    found = importlib.import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found


def main() -> int:
    """Returns the exit code for the function's outcome."""
    directory = Path(sys.argv[1])
    call = json.loads((directory / "call.json").read_text())
    faulthandler.enable()
    # A rank that hangs shows where, before the parent ends it.
    faulthandler.dump_traceback_later(call["dump_after"])
    # That of the parent, as multiprocessing does: both sides then import the
    # same keras_ring and the same test module.
    sys.path[:] = call["path"]
    from tests.harness import codes

    try:
        arguments = pickle.loads((directory / "arguments.pickle").read_bytes())
        value = _find(call["function"])(*arguments)
        _write(directory, {"value": value})
        return codes.PASS
    except BaseException as error:
        skipped = type(error).__name__ in ("Skipped", "SkipTest")
        record = {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        _write(directory, record)
        if skipped:
            return codes.SKIP
        if isinstance(error, SystemExit):
            raise
        # Prints it, and lets keras_ring's hook take note of it.
        sys.excepthook(type(error), error, error.__traceback__)
        return codes.TEST_FAILURE


if __name__ == "__main__":
    sys.exit(main())
