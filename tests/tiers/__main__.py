"""Prints the parts of the long tier that the change pulls.

python -m tests.tiers
"""

from tests.tiers import path_map
from tests.tiers.changes import changed_paths


def main() -> None:
    parts = path_map.pulled_by(changed_paths())
    for part in path_map.PARTS:
        if part in parts:
            print(part)


if __name__ == "__main__":
    main()
