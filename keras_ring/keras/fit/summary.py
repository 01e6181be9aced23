"""The lines about a `fit` that has ended."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from keras_ring.keras.fit.figures import Figures
from keras_ring.observe.judge import hidden_share, percent
from keras_ring.observe.view import JobView, RankView
from keras_ring.observe.waiting import explain

# A smaller share of communication is reported without details.
_NOTABLE_SHARE = 0.01


def summary(by_rank: Sequence[Figures], ranks: Sequence[int]) -> list[str]:
    """Returns lines about a `fit`.

    Args:
        by_rank: Sequence of the `Figures` of ranks.
        ranks: Sequence of integers, the ranks in the same order.
    """
    lines = [_pace(by_rank)]
    if len(ranks) > 1:
        lines.append(_communication(by_rank))
        lines += explain(_job(by_rank, ranks)) or [
            "No rank was late, and none waited long for its input pipeline."
        ]
    return lines


def bytes_text(count: float) -> str:
    """Returns a number of bytes as text, such as `"1.4 GB"`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB"


def rate_text(samples_per_second: float) -> str:
    """Returns a rate as text, such as `"4,120 samples/s"`."""
    digits = 0 if samples_per_second >= 100 else 1
    return f"{samples_per_second:,.{digits}f} samples/s"


def _pace(by_rank: Sequence[Figures]) -> str:
    first = by_rank[0]
    count = len(by_rank)
    # The samples of all ranks per step of the first, so that all figures of the
    # line fit together.
    batch = sum(figures.samples for figures in by_rank) / max(first.steps, 1)
    rate = batch / first.step_seconds if first.step_seconds else 0.0
    of_ranks = f" of {count} ranks" if count > 1 else ""
    peak = bytes_text(max(figures.peak_bytes for figures in by_rank))
    each = " per rank" if count > 1 else ""
    steps = f"{first.steps} step{'s' * (first.steps != 1)} of {_whole(batch)}"
    steps += f" in {first.fit_ns / 1e9:.1f} s"
    if first.steady_steps:
        steps += f"; later ones, {1e3 * first.step_seconds:.1f} ms each"
    return (
        f"{steps}: {rate_text(rate)}{of_ranks}, up to {peak} of memory{each}."
    )


def _whole(batch: float) -> str:
    """Returns the samples per step as text, "about" if they are not whole."""
    return f"{batch:.0f}" if batch == int(batch) else f"about {batch:.0f}"


def _communication(by_rank: Sequence[Figures]) -> str:
    """Returns a line about communication and how much of it is hidden."""
    share = statistics.mean(figures.communication for figures in by_rank)
    if share < _NOTABLE_SHARE:
        return f"Communication takes {percent(share)} of the time."
    hidden = hidden_share(
        sum(figures.hidden_ns for figures in by_rank),
        sum(figures.execute_ns for figures in by_rank),
    )
    return (
        f"Communication takes {percent(share)} of the time, of which"
        f" {percent(hidden)} is hidden behind computation."
    )


def _job(by_rank: Sequence[Figures], ranks: Sequence[int]) -> JobView:
    views = tuple(
        _rank(figures, rank)
        for figures, rank in zip(by_rank, ranks, strict=True)
    )
    return JobView(
        job="",
        size=len(views),
        command="",
        cwd="",
        hosts=(),
        seconds=by_rank[0].fit_ns / 1e9,
        epoch=0,
        steps_per_second=None,
        samples_per_second=None,
        communication=statistics.mean(r.communication for r in by_rank),
        data=statistics.mean(r.share(r.data_wait_ns) for r in by_rank),
        checkpoint=statistics.mean(r.share(r.checkpoint_ns) for r in by_rank),
        memory=0,
        ranks=views,
        unseen=(),
    )


def _rank(figures: Figures, rank: int) -> RankView:
    late = figures.late_ns / 1e9
    # The buckets of one step wait for a rank at the same time, so their waits
    # do not add up.
    by_step = figures.late_ns * figures.steady_steps // max(figures.buckets, 1)
    return RankView(
        rank=rank,
        host="",
        pid=0,
        state="running",
        activity="compute",
        pending=0,
        quiet=None,
        steps_per_second=None,
        samples_per_second=None,
        communication=figures.communication,
        data=figures.share(figures.data_wait_ns),
        checkpoint=figures.share(figures.checkpoint_ns),
        last=figures.last_buckets / max(figures.buckets, 1),
        late=figures.share(min(figures.late_ns, by_step)),
        late_mean=late / max(figures.last_buckets, 1),
        memory=figures.peak_bytes,
        error="",
    )
