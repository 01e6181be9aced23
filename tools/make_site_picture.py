"""Draws docs/images/site.png: the first page of the site, in a browser."""

import sys
import tempfile
from pathlib import Path

from screenshot import screenshot


def main(page: str, target: str) -> None:
    """Writes the picture.

    Args:
        page: The first page of the site that `make site` has made.
        target: Path of the picture.
    """
    with tempfile.TemporaryDirectory() as folder:
        screenshot(Path(page), target, Path(folder), "1280,780")


if __name__ == "__main__":
    main(*sys.argv[1:])
