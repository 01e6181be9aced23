"""The output of `keras-ring top` to a terminal."""

import threading

from rich.console import Console
from rich.live import Live
from rich.text import Text

from keras_ring.observe.jobs import Job
from keras_ring.observe.screen import frame, rows_for
from keras_ring.observe.view import JobView, view

# The width of output that is not to a terminal, as the table needs it.
_PLAIN_WIDTH = 100


def print_once(job: JobView, rows: int) -> None:
    """Prints a frame as plain text, to a terminal or not.

    Args:
        job: `JobView`, the state of the job.
        rows: Integer, the number of ranks to show at most.
    """
    console = Console(
        color_system=None, highlight=False, emoji=False, markup=False
    )
    if not console.is_terminal:
        console.width = max(console.width, _PLAIN_WIDTH)
    console.print(frame(job, rows=rows))


def follow(job: Job, interval: float, rows: int | None) -> int:
    """Shows a job repeatedly until it has ended.

    Args:
        job: The job.
        interval: Float, the seconds between two frames.
        rows: Integer, the number of ranks to show; `None` for as many as fit.

    Returns:
        The exit code.
    """
    console = Console(highlight=False)
    pause = threading.Event()
    before = job.read()
    try:
        with Live(console=console, auto_refresh=False) as live:
            seen = view((), before.pages)
            while seen is not None:
                shown = frame(seen, rows=rows or rows_for(console))
                live.update(shown, refresh=True)
                if not before.runs:
                    break
                pause.wait(interval)
                now = job.read()
                seen = view(before.pages, now.pages) if now.pages else None
                before = now
    except KeyboardInterrupt:
        # Ctrl-C is the usual way to leave.
        return 0
    if not before.pages:
        console.print(Text(f"job {job.id} has ended"))
    return 0
