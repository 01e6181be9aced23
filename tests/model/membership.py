"""Which steps count when ranks are lost: StepLedger and Authority.

Ranks train: each step has one bucket, then a commit. Any of them may be killed
at any moment, also while the others form the next generation. The authority is
that of the launcher (keras_ring/launch/elastic/authority.py); what a rank does
is that of csrc/runtime/elastic/step_ledger.cc and elastic_job.cc, which
`test_elastic_core.py` holds to the same.
"""

import dataclasses
from typing import NamedTuple

from keras_ring.launch.elastic import authority as authorities
from keras_ring.launch.elastic.authority import Authority
from keras_ring.launch.elastic.messages import (
    MemberReport,
    Outcome,
    Settlement,
    StepReport,
)
from tests.model.explorer import Violation

_GROUP = "weights"

# How far a rank has come in its step: nothing submitted; the bucket waits, has
# begun, was lost with the generation, or has ended well; the commit is asked
# for, of what was lost or of what is whole.
NEW, SUBMITTED, BEGUN, TORN, WHOLE, ASKED_TORN, ASKED = range(7)
# Where it is: in a generation; has noticed that this is over; has reported; has
# been told of the next one, which it tries to form.
RUNS, BROKEN, REPORTED, FORMS = range(4)


@dataclasses.dataclass(frozen=True)
class Faults:
    """What broken code would do."""

    # settle: discards for who is behind what another one has committed.
    discards_for_who_is_behind: bool = False
    # settle: commits if any rank has everything.
    commits_for_one: bool = False
    # settle: an open step goes on for each rank that has not begun it.
    goes_on_where_not_begun: bool = False
    # Authority: decides before the last report.
    decides_early: bool = False
    # Reports: begun is left out.
    hides_what_has_begun: bool = False
    # Ended: torn is left out.
    takes_torn_for_whole: bool = False
    # Settle: a discarded step is not gone through alone.
    submits_what_is_discarded: bool = False
    # Settle: whoever waits for a commit counts it.
    counts_what_is_discarded: bool = False


@dataclasses.dataclass(frozen=True)
class Scenario:
    ranks: int = 2
    steps: int = 2
    deaths: int = 1


class Rank(NamedTuple):
    up: bool = True
    generation: int = 0
    where: int = RUNS
    phase: int = NEW
    settled: int = 0
    discarded: bool = False
    # What has become of each step that the program is through with: the
    # generation of its bucket, or None for a discarded one.
    log: tuple = ()
    ran_in: int = -1  # the generation of the bucket of the step
    sent: int = -1  # and that in which the others were asked last


class State(NamedTuple):
    ranks: tuple[Rank, ...]
    # Members by generation.
    members: tuple[tuple[int, ...], ...]
    # Deaths that the authority has seen, and reports that it has.
    seen: frozenset
    reports: tuple
    # Of the generation that was decided last.
    settled: tuple
    deaths: int = 0


class Membership:
    """A model of one commit group."""

    def __init__(self, scenario, faults=None):
        self.scenario = scenario
        self.faults = faults or Faults()

    def initial(self):
        count = self.scenario.ranks
        return State(
            (Rank(),) * count, (tuple(range(count)),), frozenset(), (), ()
        )

    def is_final(self, state):
        return all(
            not rank.up or len(rank.log) == self.scenario.steps
            for rank in state.ranks
        )

    def fault(self, state):
        logs = [rank.log for rank in state.ranks if rank.up]
        for log in logs:
            for other in logs:
                both = min(len(log), len(other))
                if log[:both] != other[:both]:
                    return f"ranks differ: {log}, {other}"
        return None

    def actions(self, state):
        for index, rank in enumerate(state.ranks):
            if not rank.up:
                continue
            if state.deaths < self.scenario.deaths:
                yield (
                    f"rank {index} is killed",
                    _with(state, index, up=False)._replace(
                        deaths=state.deaths + 1
                    ),
                )
            yield from self._program(state, index, rank)
            if rank.where == RUNS:
                yield from self._runs(state, index, rank)
            elif rank.where == FORMS:
                yield from self._forms(state, index, rank)
            elif rank.where == BROKEN:
                yield (
                    f"rank {index} reports",
                    self._reported(state, index, rank),
                )
        yield from self._authority(state)

    # --- A rank ---

    def _program(self, state, index, rank):
        """What a program does by itself, whoever is there."""
        if len(rank.log) == self.scenario.steps:
            return
        sent = rank.generation if rank.where == RUNS else -1
        if rank.discarded:
            yield (
                f"rank {index} is through the discarded step",
                _with(state, index, discarded=False, log=(*rank.log, None)),
            )
        elif rank.phase == NEW:
            yield (
                f"rank {index} submits",
                _with(state, index, phase=SUBMITTED, sent=sent),
            )
        elif rank.phase in (WHOLE, TORN):
            asked = ASKED if rank.phase == WHOLE else ASKED_TORN
            yield (
                f"rank {index} asks",
                _with(state, index, phase=asked, sent=sent),
            )

    def _runs(self, state, index, rank):
        members = [state.ranks[i] for i in state.members[rank.generation]]
        generation, step = rank.generation, rank.settled

        def has(each, phase):
            """Whether a member has come so far in this step, in this one."""
            if each.settled > step:
                return len(each.log) > step and each.log[step] == generation
            if each.settled < step or each.phase < phase:
                return False
            if each.phase in (SUBMITTED, ASKED):
                return each.sent == generation
            return each.ran_in == generation

        if rank.phase == SUBMITTED and all(has(m, SUBMITTED) for m in members):
            yield (
                f"rank {index} begins",
                _with(state, index, phase=BEGUN, ran_in=generation),
            )
        elif rank.phase == BEGUN and all(has(m, BEGUN) for m in members):
            yield (
                f"rank {index} has the result",
                _with(state, index, phase=WHOLE),
            )
        elif rank.phase == ASKED and all(has(m, ASKED) for m in members):
            yield (
                f"rank {index} commits",
                _stepped(state, index, rank.ran_in),
            )
        if any(
            not each.up
            # It was told by one that has noticed.
            or each.generation > generation
            or each.where in (BROKEN, REPORTED)
            for each in members
        ):
            lost = TORN if rank.phase == BEGUN else rank.phase
            yield (
                f"rank {index} notices",
                _with(state, index, where=BROKEN, phase=lost),
            )

    def _reported(self, state, index, rank):
        begun = rank.phase > BEGUN
        whole = rank.phase == ASKED and rank.ran_in >= 0
        if self.faults.takes_torn_for_whole:
            whole = rank.phase in (ASKED, ASKED_TORN)
        if self.faults.hides_what_has_begun:
            begun = False
        report = MemberReport(
            rank.generation,
            steps=_Row({_GROUP: StepReport(rank.settled, begun, whole)}),
        )
        after = _with(state, index, where=REPORTED)
        return after._replace(reports=(*state.reports, (index, report)))

    def _forms(self, state, index, rank):
        members = [state.ranks[i] for i in state.members[rank.generation]]
        there = [
            each.generation == rank.generation and each.where in (FORMS, RUNS)
            for each in members
        ]
        if all(there) and all(each.up for each in members):
            yield (
                f"rank {index} is in",
                _with(state, index, where=RUNS, sent=rank.generation),
            )
        if any(not each.up for each in members) or any(
            each.generation == rank.generation
            and each.where in (BROKEN, REPORTED)
            for each in members
        ):
            yield (
                f"rank {index} cannot form it",
                _with(state, index, where=BROKEN),
            )

    # --- The launcher ---

    def _authority(self, state):
        generation = len(state.members) - 1
        members = state.members[generation]
        for index in members:
            if not state.ranks[index].up and index not in state.seen:
                yield from self._decided(
                    state._replace(seen=state.seen | {index}),
                    f"the authority sees that {index} is dead",
                )

        del members
        if self.faults.decides_early and state.reports:
            yield from self._decided(state, "the authority decides", early=True)
        elif state.reports:
            yield from self._decided(
                state, "the authority has read", only_if_decided=True
            )

    def _decided(self, state, label, *, early=False, only_if_decided=False):
        generation = len(state.members) - 1
        members = state.members[generation]
        authority = Authority(members, generation)
        reports = dict(state.reports)
        gone = set(state.seen)
        if early:
            gone |= set(members) - reports.keys()
        with _settling_as(self.faults):
            for index in members:
                if index in gone:
                    authority.on_death(index)
            for index, report in state.reports:
                authority.on_report(index, report)
        if not authority.changes:
            if not only_if_decided:
                yield label, state
            return
        change = authority.changes[-1]
        after = state._replace(
            members=(*state.members, change.members),
            reports=(),
            settled=change.settled,
        )
        for index in change.members:
            after = self._told(after, index, change)
        yield f"{label}; generation {change.generation}", after

    def _told(self, state, index, change):
        """A rank takes what it is told: StepLedger::Settle."""
        (settlement,) = change.settled
        outcome = settlement.outcome
        state = _with(state, index, generation=change.generation, where=FORMS)
        rank = state.ranks[index]
        behind = rank.settled < settlement.step
        if behind:
            counts = not self.faults.discards_for_who_is_behind
            state = _stepped(state, index, rank.ran_in if counts else None)
            rank = state.ranks[index]
        if outcome == Outcome.OPEN:
            return state
        fresh = rank.phase in (NEW, SUBMITTED)
        if fresh and self.faults.goes_on_where_not_begun:
            return state
        if rank.phase in (ASKED, ASKED_TORN):
            counts = (
                outcome == Outcome.COMMITTED
                or self.faults.counts_what_is_discarded
            )
            return _stepped(state, index, rank.ran_in if counts else None)
        if fresh and self.faults.submits_what_is_discarded:
            return state
        # The program is in the step yet.
        return _with(
            state,
            index,
            settled=rank.settled + 1,
            phase=NEW,
            discarded=True,
            ran_in=-1,
            sent=-1,
        )


class _Row(dict):
    """A dictionary that a state can have."""

    def __hash__(self):
        return hash(tuple(self.items()))


def _stepped(state, index, ran_in):
    """A rank is in the next step; this one has counted, or not (`None`)."""
    rank = state.ranks[index]
    if ran_in is not None and rank.phase != ASKED:
        raise Violation(
            f"rank {index} counts a step without its results", "a settlement"
        )
    return _with(
        state,
        index,
        phase=NEW,
        settled=rank.settled + 1,
        log=(*rank.log, ran_in),
        ran_in=-1,
        sent=-1,
    )


def _with(state, index, **values):
    ranks = list(state.ranks)
    ranks[index] = ranks[index]._replace(**values)
    return state._replace(ranks=tuple(ranks))


class _settling_as:
    """Puts a broken rule in the place of `settle`."""

    def __init__(self, faults):
        self._faults = faults
        self._right = authorities.settle

    def __enter__(self):
        if self._faults.commits_for_one:
            authorities.settle = self._commits_for_one

    def __exit__(self, *exc_info):
        authorities.settle = self._right

    def _commits_for_one(self, reports):
        rows = [report.steps[_GROUP] for report in reports]
        return tuple(
            Settlement(each.group, each.step, Outcome.COMMITTED)
            if any(r.whole and r.settled == each.step for r in rows)
            else each
            for each in self._right(reports)
        )
