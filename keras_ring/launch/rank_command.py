"""The command that every rank runs."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from keras_ring.launch.python_command import python_script
from keras_ring.launch.usage import UsageError

# The word of a command that stands for the directory of the plan's files.
FILES = "{files}"


def with_files(
    command: Sequence[str], directory: Path | None
) -> tuple[str, ...]:
    """Returns a command with `FILES` replaced by this directory."""
    return tuple(str(directory) if word == FILES else word for word in command)


def check_command(command: Sequence[str], search_path: str | None) -> None:
    """Raises a UsageError if a command cannot be run.

    Args:
        command: Sequence of strings, the program and its arguments.
        search_path: String, the ranks' `PATH`, or `None` for that of this
            process.
    """
    if not command:
        raise UsageError(
            "no command to run; add one, for example: -- python train.py"
        )
    program = command[0]
    if shutil.which(program, path=search_path) is None:
        if program.endswith(".py") and Path(program).is_file():
            raise UsageError(
                f"{program} is not an executable program;"
                f" try: -- python {program}"
            )
        raise UsageError(f"program not found: {program!r}")
    script = python_script(command)
    if (
        script is not None
        and script.endswith(".py")
        and not Path(script).is_file()
    ):
        raise UsageError(f"script not found: {script!r}")
