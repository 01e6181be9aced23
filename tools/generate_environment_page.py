"""Writes docs/environment.md from the table that the parser uses."""

import sys
from pathlib import Path

from keras_ring.core import native
from keras_ring.protocol import auto_options, time_limits

HEADER = """# Environment variables

Generated from `csrc/base/options.cc`, and from `auto_options.py` and
`time_limits.py` of `keras_ring/protocol`, by `make docs`; do not edit.

All are read once, by `keras_ring.init()`. A value that does not parse is an
error that names the variable. Those that set the job's behaviour must be equal
on all ranks; `keras-ring run` hands them on.

"""
TABLE = """| variable | value | default | meaning |
|---|---|---|---|
"""
AUTO = """
Those of `keras-ring run --auto` are read when a program first imports Keras or
TensorFlow, or `keras_ring.auto`, and count only if `KERAS_RING_AUTO` does:

"""
LIMITS = """
Those of the command `keras-ring run` alone, and of `kr.run`, are read when a
job starts. Each is also an option, which counts more:

"""


def _row(name: str, kind: str, default: str, meaning: str) -> str:
    return f"| `{name}` | {kind} | {default or '-'} | {meaning} |\n"


def page() -> str:
    """Returns the text of the page."""
    of_core = [_row(*each) for each in native.core().describe_options()]
    of_auto = [
        _row(name, option.expected, option.default, option.meaning)
        for name, option in auto_options.OPTIONS.items()
    ]
    of_command = [
        _row(
            name,
            limit.expected,
            f"{limit.default:g}",
            f"`{limit.option}`: {limit.meaning}.",
        )
        for name, limit in time_limits.LIMITS.items()
    ]
    parts = [HEADER, TABLE, *of_core, AUTO, TABLE, *of_auto]
    return "".join([*parts, LIMITS, TABLE, *of_command])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
