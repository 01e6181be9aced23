"""Computes the state and the rates of a job from two readings of its pages.

These are functions of values; the caller decides when to read.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from keras_ring.observe.pages import Page
from keras_ring.observe.words import ACTIVITIES

_NS = 1e9


@dataclass(frozen=True, kw_only=True)
class RankView:
    """View of one rank.

    Rates and shares refer to the time between the two readings. They are
    `None` if there was one reading only.

    Args:
        rank: Index of the rank.
        host: Name of its host.
        pid: Its process id on that host.
        state: `"running"`; `"failed"` if its process has ended after an error;
            `"killed"` if it has ended without an error; `"gone"` if its page
            was there at the first reading only.
        activity: Its current activity: one of `words.ACTIVITIES`,
            `"communicate"` if it computes and has submitted tensors that are
            not finished, or `"stopped"`.
        pending: Number of submitted tensors that are not finished.
        quiet: Seconds since a tensor was last submitted or finished, or `None`
            if there was none.
        steps_per_second: Steps of training.
        samples_per_second: Samples that it has trained on.
        communication: Share of time in which a collective was executed.
        data: Share of time in which it waited for its input pipeline.
        checkpoint: Share of time in which it saved.
        last: Share of the buckets that waited for this rank.
        late: Seconds per second for which steps have waited for it, or
            buckets if the program does not mark steps.
        late_mean: Mean time in seconds for which such a bucket waited.
        memory: Bytes that its process uses.
        error: The last error of the rank; `""` for none.
    """

    rank: int
    host: str
    pid: int
    state: str
    activity: str
    pending: int
    quiet: float | None
    steps_per_second: float | None
    samples_per_second: float | None
    communication: float | None
    data: float | None
    checkpoint: float | None
    last: float | None
    late: float | None
    late_mean: float | None
    memory: int
    error: str


@dataclass(frozen=True, kw_only=True)
class JobView:
    """View of a job.

    Args:
        job: Name of the job.
        size: Number of its ranks.
        command: The command that it runs.
        cwd: Its working directory.
        hosts: Names of the hosts of the visible ranks.
        seconds: Seconds since it has begun.
        epoch: Number of the current epoch.
        steps_per_second: Steps of training.
        samples_per_second: Samples, of all ranks.
        communication: Mean share of time in which a collective was executed.
        data: Mean share of time waiting for input pipelines.
        checkpoint: Mean share of time in which ranks have saved.
        memory: Bytes that its processes use.
        ranks: The visible ranks.
        unseen: Indices of the other ranks, which are on other hosts, have not
            started, or have ended.
    """

    job: str
    size: int
    command: str
    cwd: str
    hosts: tuple[str, ...]
    seconds: float
    epoch: int
    steps_per_second: float | None
    samples_per_second: float | None
    communication: float | None
    data: float | None
    checkpoint: float | None
    memory: int
    ranks: tuple[RankView, ...]
    unseen: tuple[int, ...]

    @property
    def running(self) -> tuple[RankView, ...]:
        """The ranks whose processes live."""
        return tuple(rank for rank in self.ranks if rank.state == "running")


def view(before: Sequence[Page], now: Sequence[Page]) -> JobView | None:
    """Returns the view of a job from two readings, or `None` without pages.

    Args:
        before: Pages of the first reading; may be empty.
        now: Pages of the second reading.
    """
    earlier = {page.rank: page for page in before}
    ranks = [_rank(earlier.get(page.rank), page) for page in now]
    here = {page.rank for page in now}
    ranks += [
        _rank(None, page, state="gone")
        for page in before
        if page.rank not in here
    ]
    ranks.sort(key=lambda rank: rank.rank)
    pages = [*now, *before]
    if not pages:
        return None
    first = pages[0]
    running = [rank for rank in ranks if rank.state == "running"]
    seen = {rank.rank for rank in ranks}
    return JobView(
        job=first.job,
        size=first.size,
        command=first.command,
        cwd=first.cwd,
        hosts=tuple(dict.fromkeys(rank.host for rank in ranks)),
        seconds=max(page.read_ns - page.started_ns for page in pages) / _NS,
        epoch=max(page.counters.get("epoch", 0) for page in pages),
        steps_per_second=_known(
            statistics.median, (r.steps_per_second for r in running)
        ),
        samples_per_second=_known(sum, (r.samples_per_second for r in running)),
        communication=_known(
            statistics.fmean, (r.communication for r in running)
        ),
        data=_known(statistics.fmean, (r.data for r in running)),
        checkpoint=_known(statistics.fmean, (r.checkpoint for r in running)),
        memory=sum(rank.memory for rank in ranks),
        ranks=tuple(ranks),
        unseen=tuple(r for r in range(first.size) if r not in seen),
    )


def _known(
    combine: Callable[[list[float]], float], values: Iterable[float | None]
) -> float | None:
    known = [value for value in values if value is not None]
    return combine(known) if known else None


class _Between:
    """The changes on a rank between two readings."""

    def __init__(self, before: Page | None, now: Page) -> None:
        self._now = now
        self._before = before
        self._seconds = 0.0
        if before is not None and before.started_ns == now.started_ns:
            self._seconds = (now.read_ns - before.read_ns) / _NS

    def count(self, name: str) -> float | None:
        if self._before is None or self._seconds <= 0 or not self._now.alive:
            return None
        if name not in self._now.counters or name not in self._before.counters:
            return None
        change = self._now.counters[name] - self._before.counters[name]
        return max(0.0, change)

    def rate(self, name: str) -> float | None:
        change = self.count(name)
        return None if change is None else change / self._seconds

    def share(self, name: str) -> float | None:
        """Returns the rate of a counter of ns as a share of the time."""
        rate = self.rate(name)
        return None if rate is None else min(1.0, rate / _NS)

    def ratio(self, name: str, of: str) -> float | None:
        part, whole = self.count(name), self.count(of)
        return part / whole if part is not None and whole else None


def _rank(
    before: Page | None, now: Page, *, state: str | None = None
) -> RankView:
    between = _Between(before, now)
    late_mean = between.ratio("late_ns", "last_buckets")
    late = between.rate("late_ns")
    in_step = between.ratio("buckets", "fit_steps")
    if late is not None and in_step is not None:
        # The buckets of a step wait at the same time, so their sum is divided.
        late /= max(in_step, 1.0)
    return RankView(
        rank=now.rank,
        host=now.host,
        pid=now.pid,
        state=state or _state(now),
        activity=_activity(now),
        pending=now.counters.get("pending", 0),
        quiet=_quiet(now),
        steps_per_second=_steps(between, now),
        samples_per_second=(
            # Programs without `fit` may count none.
            between.rate("samples") if now.counters.get("samples") else None
        ),
        communication=between.share("execute_ns"),
        data=between.share("data_wait_ns"),
        checkpoint=between.share("checkpoint_ns"),
        last=between.ratio("last_buckets", "buckets"),
        late=None if late is None else late / _NS,
        late_mean=None if late_mean is None else late_mean / _NS,
        memory=now.memory,
        error=now.error,
    )


def _state(page: Page) -> str:
    if page.alive:
        return "running"
    return "failed" if page.error else "killed"


def _steps(between: _Between, now: Page) -> float | None:
    """Returns steps per second, those of `fit` if it is used."""
    if now.counters.get("fit_steps"):
        return between.rate("fit_steps")
    # In other programs only rank 0 knows the steps.
    return between.rate("steps") if now.rank == 0 else None


def _activity(page: Page) -> str:
    if page.stopped:
        return "stopped"
    number = page.counters.get("activity", 0)
    activity = ACTIVITIES[number] if number < len(ACTIVITIES) else "compute"
    if activity == "compute" and page.counters.get("pending", 0):
        return "communicate"
    return activity


def _quiet(page: Page) -> float | None:
    last = max(
        page.counters.get(name, 0) for name in ("submitted_ns", "done_ns")
    )
    return max(0.0, (page.read_ns - last) / _NS) if last else None
