"""Writes docs/metrics.md from the table of the runtime's counters."""

import sys
from pathlib import Path

from keras_ring.core import native

HEADER = """# Metrics

Generated from `csrc/base/counters.cc` by `make docs`; do not edit.

`kr.metrics()` returns what this rank's runtime has counted since `init()`, as a
dictionary of integers. Each number is exact; they are not read at one moment.
The difference of two calls is what happened between them.

| key | unit | meaning |
|---|---|---|
"""


def page() -> str:
    """Returns the text of the page."""
    rows = [
        f"| `{name}` | {unit} | {meaning} |"
        for name, unit, meaning in native.core().describe_metrics()
    ]
    return HEADER + "\n".join(rows) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
