"""Draws docs/images/report.png: the report of a job like this, in a browser."""

import sys
import tempfile
from pathlib import Path

# The tests' jobs: run it in the checkout.
sys.path.insert(0, str(Path(__file__).parents[1]))

from screenshot import screenshot

from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.page import as_html
from tests.unit.made_timelines import Job, make

_JOB = Job(
    size=8,
    steps=300,
    hosts=2,
    slow_data={5: 4.0},
    checkpoint=60.0,
    checkpoint_every=50,
)


def main(target: str) -> None:
    """Writes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(as_html(analyse(make(_JOB))), encoding="utf-8")
        screenshot(page, target, Path(folder, "profile"), "1000,1130")


if __name__ == "__main__":
    main(sys.argv[1])
