"""Has a browser without a window draw a page."""

import subprocess
from pathlib import Path


def screenshot(page: Path, target: str, profile: Path, size: str) -> None:
    """Writes a picture of a page.

    Args:
        page: A file.
        target: Path of the picture.
        profile: A directory that the browser may fill.
        size: Of the window, such as `"1000,1130"`.
    """
    subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu"),
            *("--disable-quic", "--no-first-run", "--disable-sync"),
            "--disable-background-networking",
            *("--disable-component-update", "--hide-scrollbars"),
            f"--user-data-dir={profile}",
            f"--window-size={size}",
            f"--screenshot={Path(target).absolute()}",
            page.absolute().as_uri(),
        ],
        check=True,
        timeout=60,
    )
