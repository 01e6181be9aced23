"""Writes the tables of docs/scale.md: `make scale`."""

import json
import re
import subprocess
import sys
from pathlib import Path

MARK = "<!-- What follows is made by `make scale`. -->\n"
RANKS_PER_HOST = 8
SIZES = (8, 64, 512, 4096)


def starts(rendezvous: str) -> str:
    """Returns the table of how jobs of some sizes start."""
    rows = [
        "## Start-up",
        "",
        "| ranks | all started after | processor time of rank 0 | connections "
        "to it | sent by it |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        done = subprocess.run(
            [rendezvous, str(size), str(RANKS_PER_HOST)],
            capture_output=True,
            text=True,
            check=True,
        )
        rows.append(
            f"| {size} | {_find('started +([0-9.]+) s', done.stdout)} s "
            f"| {_find('rank 0: cpu +([0-9.]+) s', done.stdout)} s "
            f"| {_find('([0-9]+) connections to rank 0', done.stdout)} "
            f"| {_find('rank 0, ([0-9.]+) MB from it', done.stdout)} MB |"
        )
    return "\n".join(rows) + "\n"


def noise(scale: str) -> str:
    """Returns the table of noise, with what this machine's processors take."""
    bench = [sys.executable, "-m", "keras_ring", "bench", "processor", "--json"]
    measured = json.loads(
        subprocess.run(bench, capture_output=True, text=True, check=True).stdout
    )
    words = [f"{name}={value:g}" for name, value in measured.items()]
    done = subprocess.run(
        [scale, "noise", *words], capture_output=True, text=True, check=True
    )
    return f"## Noise\n{done.stdout}\nMeasured: `{' '.join(words)}`.\n"


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"no {pattern!r} in {text!r}")
    return found[1]


def main(scale: str, rendezvous: str, page: Path) -> None:
    """Replaces what follows the mark."""
    text, mark, _ = page.read_text().partition(MARK)
    if not mark:
        raise ValueError(f"{page} has no mark")
    tables = subprocess.run(
        [scale, "tables"], capture_output=True, text=True, check=True
    )
    pieces = (tables.stdout, noise(scale), starts(rendezvous))
    page.write_text(f"{text}{MARK}\n" + "\n".join(pieces))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
