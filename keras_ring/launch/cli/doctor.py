"""Finds the rank of a job that diverged, from the ranks' flight logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from keras_ring.launch.cli.flight_log import FlightLog, Operation
from keras_ring.observe.judge import (
    MUCH_MAYBE_HIDDEN,
    STANDSTILL_SECONDS,
    is_often_last,
    percent,
)
from keras_ring.observe.words import CAUSES, doing, listed

_MAX_NAMES = 3
# The activity of a program that does nothing else of note. It is not reported.
_COMPUTE = "compute"

# A rank has held up the others if there are at least so many buckets, and it
# was late by so many seconds on average.
_MIN_BUCKETS = 10
_HELD_UP_SECONDS = 1e-3


def diagnose(
    logs: Sequence[FlightLog], activities: Mapping[int, str] | None = None
) -> str:
    """Returns a paragraph on the ranks of one process set.

    It tells, in this order: why the logs were written, which ranks left none,
    where the ranks diverged or which operation runs and does not end, which
    operation failed first, and which rank the others waited for before or that
    links took the time. Times are compared between hosts, so their clocks
    should agree.

    Args:
        logs: Sequence of the `FlightLog`s of ranks of one job and process set,
            at most one for each rank.
        activities: Dictionary of the known activities, by rank.
    """
    view = _View(logs, activities or {})
    sentences = [
        *_reasons(view),
        *_absent(view),
        *(_parting(view) or _unfinished(view)),
        *_failures(view),
        *(_held_up(view) or _communication(view)),
    ]
    if not any(
        operation.is_open for log in logs for operation in log.operations
    ):
        sentences.append("Nothing was under way on any of them.")
    sentences.append(_last_common(view))
    return " ".join(sentences)


def report(
    logs: Sequence[FlightLog], activities: Mapping[int, str] | None = None
) -> list[str]:
    """Returns a paragraph and a line for each rank, for each process set.

    Args:
        logs: Sequence of the `FlightLog`s of ranks of one job.
        activities: Dictionary of the known activities, by rank. Each is one of
            `words.ACTIVITIES`.
    """
    lines = []
    for number in sorted({log.process_set for log in logs}):
        members = [log for log in logs if log.process_set == number]
        if number:
            lines.append(f"Process set {number}:")
        lines.append(diagnose(members, activities))
        lines += [f"  {_rank_line(log)}" for log in members]
    return lines


def _rank_line(log: FlightLog) -> str:
    """Returns one line on a rank, with its process and last operation."""
    who = f"rank {log.rank} ({log.host}, pid {log.pid})"
    if log.last is None:
        return f"{who}: no operations"
    count = sum(operation.is_open for operation in log.operations)
    text = f"{who}: last asked for {log.last.label}, {log.last.state}"
    if log.last.ended is not None:
        text += f" {_ago(log, log.last.ended)}"
    return f"{text}; {count} open" if count else text


class _View:
    """The logs, and facts of them that are needed more than once."""

    def __init__(
        self, logs: Sequence[FlightLog], activities: Mapping[int, str]
    ) -> None:
        self.activities = activities
        self.logs = {log.rank: log for log in logs}
        self.members = logs[0].members
        self.waiting = {
            log.rank: {op.name: op for op in log.operations if op.is_waiting}
            for log in logs
        }

    @property
    def ranks(self) -> list[int]:
        return sorted(self.logs)

    def without(self, name: str) -> list[int]:
        """Returns the ranks that have not asked for what others wait for."""
        having = self.having(name)
        known = [self.last_decision(rank) or 0 for rank in having]
        # A decision needs all ranks, so a rank whose operation has run has only
        # received the decision earlier.
        newest = min(known, default=0)
        return [
            rank
            for rank in self.ranks
            if rank not in having and not self._decided(rank, name, newest)
        ]

    def having(self, name: str) -> list[int]:
        return [rank for rank in self.ranks if name in self.waiting[rank]]

    def _decided(self, rank: int, name: str, after: int) -> bool:
        return any(
            operation.name == name and (operation.decision or 0) > after
            for operation in self.logs[rank].operations
        )

    def last_decision(self, rank: int) -> int | None:
        numbers = [
            operation.decision
            for operation in self.logs[rank].operations
            if operation.decision is not None
        ]
        return max(numbers, default=None)


def _reasons(view: _View) -> list[str]:
    ranks_of: dict[str, list[int]] = {}
    for rank in view.ranks:
        ranks_of.setdefault(view.logs[rank].reason, []).append(rank)
    return [
        f"{_start(_ranks(ranks))} wrote what {_it(ranks)} remembered:"
        f" {reason.rstrip('.')}."
        for reason, ranks in ranks_of.items()
    ]


def _absent(view: _View) -> list[str]:
    absent = [rank for rank in view.members if rank not in view.logs]
    if not absent:
        return []
    return [
        f"{_start(_ranks(absent))} left no record:"
        f" {_it(absent)} had no time to, or the file is elsewhere."
    ]


@dataclass(frozen=True)
class _Parting:
    """The first operation that some ranks wait for and others lack."""

    operation: Operation
    having: list[int]
    lacking: list[int]


def _first_parting(view: _View) -> _Parting | None:
    partings = [
        _Parting(operation, view.having(name), view.without(name))
        for waiting in view.waiting.values()
        for name, operation in waiting.items()
        if view.without(name)
    ]
    return min(
        partings, key=lambda parting: parting.operation.submitted, default=None
    )


def _parting(view: _View) -> list[str]:
    parting = _first_parting(view)
    if parting is None:
        return _waiting_for_absent(view)
    having, lacking = parting.having, parting.lacking
    label = parting.operation.label
    log = view.logs[having[0]]
    sentences = []
    if len(lacking) < len(having):
        sentences.append(
            f"{_start(_ranks(lacking))} went another way than the rest."
        )
    elif len(having) < len(lacking):
        sentences.append(
            f"{_start(_ranks(having))} went another way than the rest."
        )
    sentences.append(
        f"{_start(_ranks(having))} asked for {label}"
        f" {_ago(log, parting.operation.submitted)} and"
        f" {_verb(having, 'waits', 'wait')} for {_ranks(lacking)}, which"
        f" {_verb(lacking, 'has', 'have')} not asked for it."
    )
    sentences += [_instead(view, rank) for rank in lacking[:_MAX_NAMES]]
    return sentences


def _waiting_for_absent(view: _View) -> list[str]:
    # One that has ended on some ranks lacks no rank.
    names = sorted(set.intersection(*map(set, view.waiting.values())))
    if not names or len(view.logs) == len(view.members):
        return []
    label = view.waiting[view.ranks[0]][names[0]].label
    return [f"All others wait for {label}{_more(names)}, so for these ranks."]


def _instead(view: _View, rank: int) -> str:
    log = view.logs[rank]
    others = [op for op in view.waiting[rank].values() if view.without(op.name)]
    if others:
        names = [operation.name for operation in others]
        lacking = view.without(names[0])
        return (
            f"Rank {rank} waits for {others[0].label}{_more(names)} instead,"
            f" for which {_ranks(lacking)} {_verb(lacking, 'has', 'have')} not"
            " asked: ranks must reach the same collectives with the same"
            " names, so look for a condition on the rank, or for ranks with"
            " different numbers of steps."
        )
    if log.last is None:
        return f"Rank {rank} has never asked for anything."
    since = f"since it asked for {log.last.label}"
    at = log.last.submitted
    if log.last.ended is not None:
        since = f"since {log.last.label} was {log.last.state}"
        at = log.last.ended
    activity = view.activities.get(rank, _COMPUTE)
    why = (
        "it is busy with something else, hangs outside of collectives, or is at"
        " its end"
        if activity == _COMPUTE
        else f"it {doing(activity, [rank])}"
    )
    return f"Rank {rank} has asked for nothing {since} {_ago(log, at)}: {why}."


def _unfinished(view: _View) -> list[str]:
    """Reports the first operation that was decided and has not ended."""
    running = {
        rank: [op for op in view.logs[rank].operations if op.is_open]
        for rank in view.ranks
    }
    first = min(
        (op for ops in running.values() for op in ops if op.decision),
        key=lambda op: op.decision or 0,
        default=None,
    )
    if first is None or first.decision is None:
        return []
    at_work = [
        rank
        for rank in view.ranks
        if any(op.decision == first.decision for op in running[rank])
    ]
    behind = [
        rank
        for rank in view.ranks
        if (view.last_decision(rank) or 0) < first.decision
    ]
    text = (
        f"{_start(first.label)} (decision {first.decision}) is at work on"
        f" {_ranks(at_work)}"
    )
    if behind:
        text += f"; {_ranks(behind)} {_verb(behind, 'is', 'are')} not there yet"
    seconds = view.logs[at_work[0]].written - first.submitted
    if at_work == sorted(view.members) and seconds >= STANDSTILL_SECONDS:
        text += (
            f", asked for {seconds:.1f} s earlier: nobody lacks, so one of"
            f" {CAUSES['link']} stands still"
        )
    return [f"{text}."]


def _failures(view: _View) -> list[str]:
    failed = [
        (operation.ended or 0.0, rank, operation)
        for rank in view.ranks
        for operation in view.logs[rank].operations
        if operation.error
    ]
    if not failed:
        return []
    _, rank, operation = min(failed, key=lambda item: item[:2])
    return [
        f"The first operation to fail was {operation.label}, on rank {rank}:"
        f" {operation.error.rstrip('.')}."
    ]


def _held_up(view: _View) -> list[str]:
    """Reports the rank that was often the last, if there is one."""
    buckets = {
        operation.decision: operation
        for rank in view.ranks
        for operation in view.logs[rank].operations
        if operation.decision is not None
    }
    late_of: dict[int, list[float]] = {}
    for operation in buckets.values():
        if operation.last_rank is not None:
            late_of.setdefault(operation.last_rank, []).append(operation.late)
    if len(buckets) < _MIN_BUCKETS or not late_of:
        return []
    rank, late = max(late_of.items(), key=lambda item: sum(item[1]))
    share, mean = len(late) / len(buckets), sum(late) / len(late)
    named = is_often_last(share, len(view.members))
    if not named or mean < _HELD_UP_SECONDS:
        return []
    return [
        f"Of the last {len(buckets)} buckets, {percent(share)} waited for rank"
        f" {rank}, for {1000 * mean:.1f} ms on average."
    ]


def _communication(view: _View) -> list[str]:
    """Reports that buckets took long without a late rank, if they did.

    The rank that was the last to be ready for a bucket has waited only for its
    bytes. Its time is the shortest of all ranks, and is measured by one clock.
    """
    shortest: dict[int, tuple[float, int, float, float]] = {}
    span = busy = 0.0
    for rank in view.ranks:
        begins, ends = [], []
        for op in view.logs[rank].operations:
            if op.decision is None or op.ended is None:
                continue
            begins.append(op.submitted)
            ends.append(op.ended)
            found = (op.ended - op.submitted, rank, op.submitted, op.ended)
            known = shortest.setdefault(op.decision, found)
            shortest[op.decision] = min(known, found)
        if ends:
            span = max(span, max(ends) - min(begins))
    if len(shortest) < _MIN_BUCKETS or len(view.members) < 2:
        return []
    for rank in view.ranks:
        covered = 0.0
        for begin, end in sorted(
            times[2:] for times in shortest.values() if times[1] == rank
        ):
            # Several buckets may run at once, so count overlaps once.
            busy += max(end - max(begin, covered), 0.0)
            covered = max(covered, end)
    share = min(busy / span, 1.0) if span > 0 else 0.0
    if share < MUCH_MAYBE_HIDDEN:
        return []
    return [
        f"The last {len(shortest)} buckets took {percent(share)} of the time"
        f" without a rank that was late for them: {CAUSES['link']}."
    ]


def _last_common(view: _View) -> str:
    lasts = [view.last_decision(rank) for rank in view.ranks]
    known = [last for last in lasts if last is not None]
    if len(known) < len(lasts):
        return "No operation was ever agreed on by all of them."
    common = min(known)
    for operation in view.logs[view.ranks[0]].operations:
        if operation.decision == common:
            return (
                f"The last that all of them had agreed on was {operation.label}"
                f" (decision {common})."
            )
    return f"The last that all of them had agreed on was decision {common}."


def _ranks(ranks: Iterable[int]) -> str:
    numbers = [str(rank) for rank in ranks]
    return f"rank{'s' * (len(numbers) != 1)} {listed(numbers)}"


def _start(text: str) -> str:
    """Returns a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def _verb(ranks: Sequence[int], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many


def _it(ranks: Sequence[int]) -> str:
    return _verb(ranks, "it", "they")


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _ago(log: FlightLog, at: float) -> str:
    return f"{max(0.0, log.written - at):.1f} s earlier"
