"""A job on a terminal: a summary, then a row for each rank.

This module needs rich, so import it only to show a frame.
"""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from keras_ring.observe.view import JobView, RankView
from keras_ring.observe.waiting import cause_of, explain

_UNKNOWN = "-"
# Number of lines of text above and below the rows.
_OTHER_LINES = 9
_MIN_ROWS = 3
_MAX_ERRORS = 3
_STYLES = {
    "killed": "bold red",
    "failed": "bold red",
    "gone": "dim",
    "stopped": "bold red",
    "data": "yellow",
    "checkpoint": "yellow",
}


def frame(job: JobView, *, rows: int) -> RenderableType:
    """Returns a job as text and a table, to be shown by rich.

    Args:
        job: View of the job.
        rows: Integer, the largest number of ranks to show. The most
            interesting ones are shown.
    """
    parts: list[RenderableType] = [_title(job), _rates(job)]
    parts += [Text(text, style="bold yellow") for text in explain(job)]
    shown = most_interesting(job, rows)
    parts += [Text(), _table(job, shown)]
    if more := len(job.ranks) - len(shown):
        parts.append(Text(f"and {more} more", style="dim"))
    if job.unseen:
        parts.append(Text(f"{len(job.unseen)} not seen here", style="dim"))
    parts += _errors(job)
    return Group(*parts)


def rows_for(console: Console) -> int:
    """Returns how many ranks fit on a terminal."""
    return max(_MIN_ROWS, console.height - _OTHER_LINES)


def most_interesting(job: JobView, limit: int) -> list[RankView]:
    """Returns the ranks to show, in their order.

    Ranks that have ended, that have met an error, that others wait for, that
    were late, or that wait for data are chosen before others.
    """
    waiting = any(rank.pending for rank in job.running)

    def interest(rank: RankView) -> tuple[float, ...]:
        awaited = waiting and rank.state == "running" and not rank.pending
        return (
            rank.state == "running",
            not rank.error,
            rank.activity != "stopped",
            not awaited,
            -(rank.late or 0.0),
            -(rank.data or 0.0),
            rank.rank,
        )

    chosen = sorted(job.ranks, key=interest)[:limit]
    return sorted(chosen, key=lambda rank: rank.rank)


def _title(job: JobView) -> Text:
    hosts = len(job.hosts)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"job {job.job}", style="bold")
    text.append(
        f"   {job.size} rank{'s' if job.size > 1 else ''} on"
        f" {job.hosts[0] if hosts == 1 else f'{hosts} hosts'}"
        f"   {_duration(job.seconds)}   {job.command}"
    )
    return text


def _rates(job: JobView) -> Text:
    parts = [
        f"{_number(job.steps_per_second, 1)} steps/s",
        f"{_number(job.samples_per_second, 0)} samples/s",
        f"epoch {job.epoch}",
        f"comm {_percent(job.communication)}",
        f"data {_percent(job.data)}",
        _memory(job.memory),
    ]
    return Text("  ".join(parts))


def _table(job: JobView, ranks: Sequence[RankView]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("rank", "steps/s", "comm", "data", "last", "late", "pending"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("does", no_wrap=True)
    # With several hosts, the host is shown in place of the process id: there
    # is no room for both.
    several = len(job.hosts) > 1
    table.add_column("host" if several else "pid", no_wrap=True)
    slowest, _ = cause_of(job)
    for rank in ranks:
        does = rank.activity if rank.state == "running" else rank.state
        cells: list[str | Text] = [
            str(rank.rank),
            _number(rank.steps_per_second, 1),
            _percent(rank.communication),
            _percent(rank.data),
            _percent(rank.last),
            _milliseconds(rank.late_mean),
            str(rank.pending),
            _memory(rank.memory),
            Text(does, style=_STYLES.get(does, "")),
            rank.host if several else str(rank.pid),
        ]
        late = slowest is not None and slowest.rank == rank.rank
        table.add_row(*cells, style="yellow" if late else "")
    return table


def _errors(job: JobView) -> list[Text]:
    failed = [rank for rank in job.ranks if rank.error]
    lines = [
        Text(f"rank {rank.rank}: {rank.error}", style="red")
        for rank in failed[:_MAX_ERRORS]
    ]
    if more := len(failed) - len(lines):
        lines.append(Text(f"and errors of {more} more", style="red"))
    return lines


def _number(value: float | None, digits: int) -> str:
    return _UNKNOWN if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{share:.0%}"


def _milliseconds(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else f"{1000 * seconds:,.1f} ms"


def _memory(count: int) -> str:
    if count >= 10 * 2**30:
        return f"{count / 2**30:,.0f} GiB"
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
