"""Says what a change can touch.

python -m tests.tiers               prints the parts of the long tier it pulls
python -m tests.tiers --touches cpp  exits with 0 if it touches this lane
"""

import argparse
import sys

from tests.tiers import path_map, reach
from tests.tiers.changes import changed_paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--touches", metavar="LANE", choices=reach.LANES)
    lane = parser.parse_args().touches
    paths = changed_paths()
    if lane is not None:
        sys.exit(reach.of_lane(lane, paths) is not reach.Reach.OWN)
    parts = path_map.pulled_by(paths)
    for part in path_map.PARTS:
        if part in parts:
            print(part)


if __name__ == "__main__":
    main()
