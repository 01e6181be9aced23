"""Who waits for whom, and why: the sentences above the table of ranks."""

import statistics
from collections.abc import Callable, Sequence

from keras_ring.live.view import JobView, RankView
from keras_ring.live.words import CAUSES, doing, listed, rank_names, sentence

# Whoever waits for longer does not just wait as in every step.
_WAITING_SECONDS = 1.0
# A collective may take long where tensors are large.
_STANDSTILL_SECONDS = 5.0
# A rank holds the others up if it is the last so often, for so much of time.
_LAST_SHARE = 0.4
_LATE_SHARE = 0.03
# What takes more than this of time is worth a sentence.
_NOTABLE_SHARE = 0.1
_LINK_SHARE = 0.3
_MAX_CLAUSES = 3


def explain(job: JobView) -> list[str]:
    """Returns sentences on a job, the most urgent first."""
    told = [*_lost(job), *(_waiting(job) or _slow(job))]
    return [sentence(text) for text in told]


def cause_of(job: JobView) -> tuple[RankView | None, str]:
    """Returns the rank that holds the others up, and the cause.

    Returns:
        The rank, None if it is none in particular; and a key of `CAUSES`, or
        `""` where nothing holds the job up.
    """
    if (slowest := _slowest(job)) is not None:
        return slowest, _cause_of_lateness(slowest, job)
    if (job.checkpoint or 0.0) >= _NOTABLE_SHARE:
        return None, "checkpoint"
    if (job.data or 0.0) >= _NOTABLE_SHARE:
        return None, "data"
    if (job.communication or 0.0) >= _LINK_SHARE and len(job.ranks) > 1:
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
    """Says whom some ranks have waited for, for a time that is not usual."""
    running = job.running
    # A rank that has been stopped waits for nobody, whatever it has asked for.
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
    if len(waiting) == len(running) and seconds >= _STANDSTILL_SECONDS:
        return [
            f"all ranks have been in a collective for {seconds:.0f} s: a link"
            " stands still, or they wait for different tensors, which the"
            " stall report names"
        ]
    return []


def _awaited(ranks: Sequence[RankView]) -> str:
    """Returns whom others wait for, such as `"rank 2, which computes"`."""
    groups: dict[str, list[int]] = {}
    for rank in ranks:
        groups.setdefault(rank.activity, []).append(rank.rank)
    # What is no training comes first: it is the likelier reason.
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
            f"{rank.last or 0.0:.0%} of the buckets waited for rank"
            f" {rank.rank}, {1000 * (rank.late_mean or 0.0):.1f} ms each:"
            f" {CAUSES[cause]} ({cause})"
        ]
    texts = {
        "data": f"ranks wait for their input pipelines {job.data or 0.0:.0%}"
        " of the time (data)",
        "checkpoint": f"checkpoints take {job.checkpoint or 0.0:.0%} of the"
        " time (checkpoint)",
        "link": f"communication takes {job.communication or 0.0:.0%} of the"
        " time, and no rank is late: the links between ranks (link)",
    }
    return [texts[cause]] if cause else []


def _slowest(job: JobView) -> RankView | None:
    known = [rank for rank in job.running if rank.late is not None]
    if len(known) < 2:
        return None
    # A rank that was late once, for longer than another is in all, is not slow.
    slow = [
        rank
        for rank in known
        if (rank.last or 0.0) >= _LAST_SHARE
        and (rank.late or 0.0) >= _LATE_SHARE
    ]
    return max(slow, key=lambda rank: rank.late or 0.0, default=None)


def _cause_of_lateness(slowest: RankView, job: JobView) -> str:
    """Returns what this rank has spent more time on than the others have."""
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
