"""Which steps count when ranks are lost: StepLedger and Authority.

Ranks train: each step has one bucket, then a commit. Any of them may be killed
at any moment, also while the others form the next generation. Others may join,
and some may leave: before each step the ranks agree whether anybody waits for
that. The authority is
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
    Stand,
    StepReport,
)
from tests.model.explorer import Violation

_GROUP = "weights"

# How far a rank has come in its step: nothing submitted; the bucket waits, has
# begun, was lost with the generation, or has ended well; the commit is asked
# for, of what was lost or of what is whole.
NEW, SUBMITTED, BEGUN, TORN, WHOLE, ASKED_TORN, ASKED = range(7)
# Where it is: in a generation; has noticed that this is over; has reported; has
# been told of the next one, which it tries to form; has reported that it is
# between two steps; is to join, and is in no generation yet.
RUNS, BROKEN, REPORTED, FORMS, ADMITS, WAITS = range(6)


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
    # Authority: lets others in if one rank is between two steps.
    lets_in_for_one: bool = False
    # check_host_updates: each rank acts on what it has heard itself.
    agrees_on_nothing: bool = False
    # Settle: who comes in does not begin where the others are.
    begins_at_0: bool = False
    # GoOn: who has let others in does so once more.
    lets_in_again: bool = False


@dataclasses.dataclass(frozen=True)
class Scenario:
    ranks: int = 2
    steps: int = 2
    deaths: int = 1
    joins: int = 0
    leaves: int = 0


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
    # Before how many steps it has asked whether others wait, and whether it is
    # about to let them in.
    asked: int = 0
    lets_in: bool = False


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
    # Those that wait to come in, with their reports, and whether the ranks have
    # found before each step that some do.
    waiting: tuple = ()
    answers: tuple[bool, ...] = ()
    # Those that are to leave, or have.
    leaving: frozenset = frozenset()


class Membership:
    """A model of one commit group."""

    def __init__(self, scenario, faults=None):
        self.scenario = scenario
        self.faults = faults or Faults()

    def initial(self):
        count = self.scenario.ranks
        joiner = Rank(generation=-1, where=WAITS)
        return State(
            (Rank(),) * count + (joiner,) * self.scenario.joins,
            (tuple(range(count)),),
            frozenset(),
            (),
            (),
        )

    def is_final(self, state):
        return all(
            not rank.up
            or rank.where == WAITS
            or len(rank.log) == self.scenario.steps
            for rank in state.ranks
        )

    def fault(self, state):
        logs = [r.log for r in state.ranks if r.up and r.where != WAITS]
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
            if (
                rank.where != WAITS
                and index not in state.leaving
                and len(state.leaving) < self.scenario.leaves
            ):
                yield (
                    f"rank {index} is to leave",
                    state._replace(leaving=state.leaving | {index}),
                )
            if rank.where == WAITS:
                if index not in dict(state.waiting):
                    yield f"{index} is to join", _joining(state, index)
                continue
            yield from self._program(state, index, rank)
            if rank.where == RUNS:
                yield from self._runs(state, index, rank)
                if rank.lets_in:
                    yield (
                        f"rank {index} is between two steps",
                        self._reported(state, index, rank),
                    )
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
        if len(rank.log) == self.scenario.steps or rank.lets_in:
            return
        is_between = rank.phase == NEW and not rank.discarded
        changes = self.scenario.joins + self.scenario.leaves
        if is_between and changes and rank.asked <= len(rank.log):
            yield from self._asks_who_waits(state, index, rank)
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

    def _asks_who_waits(self, state, index, rank):
        """A collective of all ranks, whose result is given to who lacks it."""
        members = [state.ranks[i] for i in state.members[rank.generation]]
        number = len(rank.log)
        is_known = len(state.answers) > number
        is_whole = rank.where == RUNS and all(
            each.up
            and each.where in (RUNS, ADMITS)
            and each.generation == rank.generation
            and len(each.log) >= number
            for each in members
        )
        if not is_known and not is_whole:
            return
        news = [False]
        changes = self.scenario.joins + self.scenario.leaves
        leaving = state.leaving & set(state.members[rank.generation])
        if (state.waiting or leaving) and sum(state.answers) < changes:
            news.append(True)
        if is_known and not self.faults.agrees_on_nothing:
            news = [state.answers[number]]
        for some_wait in news:
            after = _with(state, index, asked=number + 1, lets_in=some_wait)
            if not is_known:
                after = after._replace(answers=(*state.answers, some_wait))
            yield f"rank {index} finds that some wait: {some_wait}", after

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
        if rank.lets_in:
            report = dataclasses.replace(report, stand=Stand.ADMITS)
        is_over = rank.where == BROKEN
        after = _with(state, index, where=REPORTED if is_over else ADMITS)
        return after._replace(reports=(*state.reports, (index, report)))

    def _forms(self, state, index, rank):
        members = [state.ranks[i] for i in state.members[rank.generation]]
        there = [
            each.generation == rank.generation
            and each.where in (FORMS, RUNS, ADMITS)
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
        for index in (*members, *dict(state.waiting)):
            if not state.ranks[index].up and index not in state.seen:
                yield from self._decided(
                    state._replace(seen=state.seen | {index}),
                    f"the authority sees that {index} is dead",
                )

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
        stands = [report.stand for report in reports.values()]
        if self.faults.lets_in_for_one and Stand.ADMITS in stands:
            reports = {
                index: dataclasses.replace(report, stand=Stand.ADMITS)
                for index, report in reports.items()
            }
        with _settling_as(self.faults):
            for index in gone:
                authority.on_deaths([index])
            authority.leave(state.leaving)
            for index, report in (*state.waiting, *reports.items()):
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
            waiting=tuple(
                row for row in state.waiting if row[0] not in change.joined
            ),
        )
        # They wait, and are killed.
        for index in change.left:
            after = _with(after, index, up=False)
        after = after._replace(seen=after.seen | set(change.left))
        old = [i for i in change.members if i not in change.joined]
        for index in old:
            after = self._told(after, index, change)
        if all(reports[index].stand == Stand.ADMITS for index in old):
            after = self._let_in(after, old, change)
        yield f"{label}; generation {change.generation}", after

    def _let_in(self, state, old, change):
        """All are between two steps, and have the state of the first."""
        if not self.faults.lets_in_again:
            for index in old:
                state = _with(state, index, lets_in=False)
        first = state.ranks[old[0]]
        for index in change.joined:
            settled = 0 if self.faults.begins_at_0 else first.settled
            state = _with(
                state,
                index,
                generation=change.generation,
                where=FORMS,
                settled=settled,
                log=first.log,
                asked=first.asked,
            )
        return state

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


def _joining(state, index):
    report = MemberReport(0, stand=Stand.JOINS, steps=_Row())
    return state._replace(waiting=(*state.waiting, (index, report)))


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
