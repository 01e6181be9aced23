"""Prints the parts that are pulled into the gate: `python -m tests.tiers`.

With `--make` only those that are targets of the Makefile.
"""

import argparse

from tests.tiers import path_map
from tests.tiers.changes import changed_paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--make", action="store_true")
    make_only = parser.parse_args().make
    paths = changed_paths()
    parts = path_map.pulled_by(paths)
    for part in path_map.PARTS:
        if part in parts and (part in path_map.MAKE or not make_only):
            print(f"test-{part}" if make_only else part)


if __name__ == "__main__":
    main()
