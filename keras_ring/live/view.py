"""What there is to say about a job, from two looks at its ranks.

Functions over values: whoever looks says when.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from keras_ring.live.pages import Page
from keras_ring.live.words import ACTIVITIES

_NS = 1e9


@dataclass(frozen=True, kw_only=True)
class RankView:
    """One rank.

    Rates and shares are of the time between the two looks, and None where
    there was one look only.

    Args:
        rank: Index of the rank.
        host: Name of its host.
        pid: Its process id there.
        state: `"running"`; `"failed"`, if its process has ended after an
            error; `"killed"`, if it has ended without a word; `"gone"`, if its
            page was there at the first look only.
        activity: What it does: one of `words.ACTIVITIES`, `"communicate"`
            where it computes and has tensors under way, or `"stopped"`.
        pending: Tensors that it has asked for and that are not finished.
        quiet: Seconds since it has asked for a tensor or finished one; None
            if it has never.
        steps_per_second: Steps of training.
        samples_per_second: Samples that it has trained on.
        communication: Share of time in which a collective was executed.
        data: Share of time in which it has waited for its input pipeline.
        checkpoint: Share of time in which it has saved.
        last: Of the buckets, the share that waited for this rank.
        late: Seconds per second for which steps have waited for it; buckets,
            where the program does not tell of steps.
        late_mean: Seconds, of one such bucket.
        memory: Bytes that its process uses.
        error: The last error that it has met; `""` for none.
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
    """A job.

    Args:
        job: Its name.
        size: Number of its ranks.
        command: What it runs.
        cwd: Where.
        hosts: Names of the hosts of the ranks that are seen.
        seconds: For how long it has run.
        epoch: The epoch that it is in.
        steps_per_second: Steps of training.
        samples_per_second: Samples, of all ranks.
        communication: Mean share of time in which a collective was executed.
        data: Mean share of time waiting for input pipelines.
        checkpoint: Mean share of time in which ranks have saved.
        memory: Bytes that its processes use.
        ranks: Those that are seen.
        unseen: Those that are not: on other hosts, not started, or ended.
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
        """The ranks that live."""
        return tuple(rank for rank in self.ranks if rank.state == "running")


def view(before: Sequence[Page], now: Sequence[Page]) -> JobView | None:
    """Returns what two looks at a job tell; None if nothing was seen.

    Args:
        before: What was read first; may be empty.
        now: What was read after it.
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
    """What has happened on a rank between two looks."""

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
        """Of a time in ns that passes once at a time."""
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
        # The buckets of a step wait at the same time.
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
    # Of other programs rank 0 alone knows what a step is.
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
