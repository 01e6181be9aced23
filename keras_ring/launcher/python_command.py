"""What a command says to Python, if Python is what it runs."""

import re
from collections.abc import Sequence
from pathlib import Path

_PYTHON = re.compile(r"python[0-9.]*t?")
# Options of the python program whose value is the next word.
_VALUE_OPTIONS = ("-W", "-X", "--check-hash-based-pycs")


def python_script(command: Sequence[str]) -> str | None:
    """Returns the script that a command hands to Python, if it is such."""
    if not _PYTHON.fullmatch(Path(command[0]).name):
        return None
    options = _options(command)
    # What follows -c and -m is no script.
    if options and re.match(r"-[A-Za-z]*[cm]", options[-1]):
        return None
    words = command[1 + len(options) :]
    return words[0] if words and words[0] != "-" else None


def reads_standard_input(command: Sequence[str]) -> bool:
    """Whether it is Python, with a program from standard input."""
    if not command or not _PYTHON.fullmatch(Path(command[0]).name):
        return False
    options = _options(command)
    # A program of its own, or none at all.
    if any(re.match(r"-[A-Za-z]*[cmhV?]|--help|--version", o) for o in options):
        return False
    return command[1 + len(options) :][:1] in ([], ["-"], (), ("-",))


def _options(command: Sequence[str]) -> tuple[str, ...]:
    """Returns the words of a command that are options of Python itself.

    Up to `-c` or `-m`, and nothing if the command is another one.
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
    """Returns the option by which a command's Python knows no hook, or `""`.

    Args:
        command: Program and arguments.
    """
    found = (
        re.match(r"-[^WXcm-]*?([IES])", option) for option in _options(command)
    )
    return next((f"-{match[1]}" for match in found if match), "")
