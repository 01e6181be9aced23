"""Sentences that explain which ranks wait for which others, and why."""

import statistics
from collections.abc import Callable, Sequence

from keras_ring.observe.judge import (
    MUCH_MAYBE_HIDDEN,
    NOTABLE_SHARE,
    STANDSTILL_SECONDS,
    is_most,
    is_often_last,
    percent,
)
from keras_ring.observe.view import JobView, RankView
from keras_ring.observe.words import CAUSES, doing, listed, rank_names, sentence

# A rank that waits for longer does not merely wait as in every step.
_WAITING_SECONDS = 1.0
_MAX_CLAUSES = 3


def explain(job: JobView) -> list[str]:
    """Returns sentences on a job, the most urgent first."""
    told = [*_lost(job), *(_waiting(job) or _slow(job))]
    return [sentence(text) for text in told]


def cause_of(job: JobView) -> tuple[RankView | None, str]:
    """Returns the rank that delays the others, and the cause.

    Returns:
        The rank, or `None` if no single rank delays the others; and a key of
        `CAUSES`, or `""` if nothing delays the job.
    """
    if (slowest := _slowest(job)) is not None:
        return slowest, _cause_of_lateness(slowest, job)
    costs = {
        "checkpoint": job.checkpoint or 0.0,
        "data": job.data or 0.0,
        "turns": _turns(job),
    }
    cause = max(costs, key=lambda name: costs[name])
    if costs[cause] >= NOTABLE_SHARE:
        return None, cause
    if (job.communication or 0.0) >= MUCH_MAYBE_HIDDEN and len(job.ranks) > 1:
        return None, "link"
    return None, ""


def _lost(job: JobView) -> list[str]:
    texts = []
    killed = [rank.rank for rank in job.ranks if rank.state == "killed"]
    if killed:
        was = "was" if len(killed) == 1 else "were"
        texts.append(f"{rank_names(killed)} {was} killed")
    failed = [rank.rank for rank in job.ranks if rank.state == "failed"]
    if failed:
        has = "has" if len(failed) == 1 else "have"
        texts.append(f"{rank_names(failed)} {has} failed")
    gone = [rank.rank for rank in job.ranks if rank.state == "gone"]
    if gone:
        seen = "is" if len(gone) == 1 else "are"
        texts.append(
            f"{rank_names(gone)} {seen} not seen any more: the job ends, or a"
            " host does not answer"
        )
    return texts


def _waiting(job: JobView) -> list[str]:
    """Returns sentences on ranks that have waited for unusually long."""
    running = job.running
    # A stopped rank waits for no other, whatever it has submitted.
    asking = [
        rank for rank in running if rank.pending and rank.activity != "stopped"
    ]
    waiting = [
        rank for rank in asking if (rank.quiet or 0.0) >= _WAITING_SECONDS
    ]
    if not waiting:
        return []
    seconds = min(rank.quiet or 0.0 for rank in waiting)
    who = rank_names([rank.rank for rank in waiting])
    wait = "waits" if len(waiting) == 1 else "wait"
    if len(asking) < len(running):
        among = {rank.rank for rank in asking}
        awaited = [rank for rank in running if rank.rank not in among]
        return [
            f"{who} {wait} for {_awaited(awaited)}; it has been {seconds:.0f} s"
        ]
    if job.unseen:
        return [
            f"{who} {wait}, perhaps for {rank_names(job.unseen)}, of which"
            f" nothing is seen here; it has been {seconds:.0f} s"
        ]
    if len(waiting) == len(running) and seconds >= STANDSTILL_SECONDS:
        return [
            f"all ranks have been in a collective for {seconds:.0f} s: a link"
            " stands still, or they wait for different tensors, which the"
            " stall report names"
        ]
    return []


def _awaited(ranks: Sequence[RankView]) -> str:
    """Returns the awaited ranks in words, as `"rank 2, which computes"`."""
    groups: dict[str, list[int]] = {}
    for rank in ranks:
        groups.setdefault(rank.activity, []).append(rank.rank)
    # Activities other than training come first: they are likelier causes.
    order = sorted(
        groups,
        key=lambda activity: (activity != "stopped", activity == "compute"),
    )
    return listed(
        [
            f"{rank_names(groups[each])}, which {doing(each, groups[each])}"
            for each in order[:_MAX_CLAUSES]
        ]
    )


def _slow(job: JobView) -> list[str]:
    rank, cause = cause_of(job)
    if rank is not None:
        return [
            f"{percent(rank.last or 0.0)} of the buckets waited for rank"
            f" {rank.rank}, {1000 * (rank.late_mean or 0.0):.1f} ms each:"
            f" {CAUSES[cause]} ({cause})"
        ]
    texts = {
        "data": "ranks wait for their input pipelines"
        f" {percent(job.data or 0.0)} of the time (data)",
        "checkpoint": f"checkpoints take {percent(job.checkpoint or 0.0)} of"
        " the time (checkpoint)",
        "turns": "the ranks take turns at being last, which takes"
        f" {percent(_turns(job))} of the time: {CAUSES['turns']} (turns)",
        "link": f"communication takes {percent(job.communication or 0.0)} of"
        f" the time, and no rank is late: {CAUSES['link']} (link)",
    }
    return [texts[cause]] if cause else []


def _slowest(job: JobView) -> RankView | None:
    known = [rank for rank in job.running if rank.late is not None]
    # A slow rank is last often: a single long delay is not enough.
    slow = [
        rank
        for rank in known
        if is_often_last(rank.last or 0.0, len(known))
        and (rank.late or 0.0) >= NOTABLE_SHARE
    ]
    return max(slow, key=lambda rank: rank.late or 0.0, default=None)


def _turns(job: JobView) -> float:
    """Returns the share of the time that ranks wait for each other in turn."""
    late = [rank.late or 0.0 for rank in job.running]
    return 0.0 if is_most(late) else sum(late)


def _cause_of_lateness(slowest: RankView, job: JobView) -> str:
    """Returns the activity on which this rank spends more time than others."""
    others = [rank for rank in job.running if rank is not slowest]

    def excess(share: Callable[[RankView], float | None]) -> float:
        usual = statistics.median(share(rank) or 0.0 for rank in others)
        return (share(slowest) or 0.0) - usual

    times = {
        "data": excess(lambda rank: rank.data),
        "checkpoint": excess(lambda rank: rank.checkpoint),
    }
    cause = max(times, key=lambda name: times[name])
    return cause if times[cause] >= 0.5 * (slowest.late or 0.0) else "compute"
