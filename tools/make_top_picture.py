"""Draws docs/images/top.svg: what `keras-ring top` shows of a job like this."""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from keras_ring.observe.pages import Page
from keras_ring.observe.screen import frame
from keras_ring.observe.view import JobView, view

_WIDTH = 80
_NS = 10**9
# In one second, in which the input pipeline of rank 2 is slower than others.
_USUAL = {
    "fit_steps": 12,
    "samples": 768,
    "buckets": 36,
    "last_buckets": 3,
    "late_ns": 2_100_000,
    "execute_ns": 143_000_000,
    "data_wait_ns": 21_000_000,
    "checkpoint_ns": 0,
}
_SLOW = {
    **_USUAL,
    "last_buckets": 27,
    "late_ns": 231_000_000,
    "data_wait_ns": 262_000_000,
}
_MEMORY = (1_541_406_720, 1_498_415_104, 1_612_709_888, 1_502_609_408)


def job() -> JobView:
    """Returns the job."""
    looks = [[_page(rank, second) for rank in range(4)] for second in (0, 1)]
    seen = view(*looks)
    if seen is None:
        raise ValueError("there are pages, so there is a job")
    return seen


def _page(rank: int, second: int) -> Page:
    changes = _SLOW if rank == 2 else _USUAL
    counters = {name: value * second for name, value in changes.items()}
    pending = 0 if rank == 2 else 14
    return Page(
        rank=rank,
        size=4,
        local_rank=rank,
        host="node1",
        pid=20811 + rank,
        job="3f2a9c01b2d4",
        command="python train.py --epochs 10",
        cwd="/home/me",
        started_unix_ns=0,
        started_ns=0,
        read_ns=(751 + second) * _NS,
        memory=_MEMORY[rank],
        counters={
            **counters,
            "epoch": 3,
            "pending": pending,
            "activity": 1 if rank == 2 else 0,
        },
    )


def text() -> str:
    """Returns the frame as plain text."""
    out = io.StringIO()
    Console(file=out, width=_WIDTH).print(frame(job(), rows=20))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def picture() -> str:
    """Returns the frame as SVG that needs nothing from a network."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    console.print(frame(job(), rows=20))
    drawn = console.export_svg(title="keras-ring top", unique_id="top")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
