"""Parses the options and the script of a command that runs Python."""

import re
from collections.abc import Sequence
from pathlib import Path

_PYTHON = re.compile(r"python[0-9.]*t?")
# Options of the python program whose value is the next word.
_VALUE_OPTIONS = ("-W", "-X", "--check-hash-based-pycs")


def python_script(command: Sequence[str]) -> str | None:
    """Returns the script of a command, if it runs Python with a script."""
    if not _PYTHON.fullmatch(Path(command[0]).name):
        return None
    options = _options(command)
    # The word after -c or -m is not a script.
    if options and re.match(r"-[A-Za-z]*[cm]", options[-1]):
        return None
    words = command[1 + len(options) :]
    return words[0] if words and words[0] != "-" else None


def reads_standard_input(command: Sequence[str]) -> bool:
    """Returns whether a command is Python with a program from its input."""
    if not command or not _PYTHON.fullmatch(Path(command[0]).name):
        return False
    options = _options(command)
    # Options with a program of their own, or without any program.
    if any(re.match(r"-[A-Za-z]*[cmhV?]|--help|--version", o) for o in options):
        return False
    return command[1 + len(options) :][:1] in ([], ["-"], (), ("-",))


def _options(command: Sequence[str]) -> tuple[str, ...]:
    """Returns the words of a command that are options of Python itself.

    The words end with `-c` or `-m`. Returns `()` if the command is not Python.
    """
    if not command or not _PYTHON.fullmatch(Path(command[0]).name):
        return ()
    options = []
    words = iter(command[1:])
    for word in words:
        if word == "-" or not word.startswith("-"):
            break
        options.append(word)
        if word in _VALUE_OPTIONS:
            options += [each for each in [next(words, None)] if each]
        elif re.match(r"-[A-Za-z]*[cm]", word):
            break
    return tuple(options)


def deaf_option(command: Sequence[str]) -> str:
    """Returns the option that makes a command's Python ignore hooks, or `""`.

    Args:
        command: Sequence of strings, the program and its arguments.
    """
    found = (
        re.match(r"-[^WXcm-]*?([IES])", option) for option in _options(command)
    )
    return next((f"-{match[1]}" for match in found if match), "")
