"""`keras-ring report`."""

from __future__ import annotations

from pathlib import Path

from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.page import as_html
from keras_ring.observe.report.verdict import verdict
from keras_ring.observe.timeline.merge import read
from keras_ring.observe.timeline.model import TimelineError


def run(source: str, target: str | None) -> tuple[Path, list[str]]:
    """Writes the report of a timeline.

    Args:
        source: The timeline: a file, or a directory of ranks' parts.
        target: The file to write. Defaults to `report.html` beside it.

    Returns:
        The file that was written, and the verdict.

    Raises:
        ValueError: If there is no timeline.
        OSError: If the file cannot be written.
    """
    path = Path(source)
    page = Path(target) if target else path.parent / "report.html"
    try:
        analysis = analyse(read(path))
    except TimelineError as error:
        raise ValueError(str(error)) from None
    page.write_text(as_html(analysis), encoding="utf-8")
    return page, verdict(analysis)
