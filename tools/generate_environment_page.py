"""Writes docs/environment.md from the table that the parser uses."""

import sys
from pathlib import Path

from keras_ring._runtime import native

HEADER = """# Environment variables

Generated from `csrc/base/options.cc` by `make docs`; do not edit.

All are read once, by `keras_ring.init()`. A value that does not parse is an
error that names the variable. Those that set the job's behaviour must be equal
on all ranks; `keras-ring run` hands them on.

| variable | value | default | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Returns the text of the page."""
    rows = [
        f"| `{variable}` | {kind} | {default or '-'} | {meaning} |"
        for variable, kind, default, meaning in (
            native.core().describe_options()
        )
    ]
    return HEADER + "\n".join(rows) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
