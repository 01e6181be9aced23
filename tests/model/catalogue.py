"""What is explored: small cases in every test run, larger ones by hand."""

import dataclasses
from collections.abc import Callable

from tests.model import chunk_barrier as steps
from tests.model import doorbell as bells
from tests.model import membership as members
from tests.model import negotiation as talks
from tests.model import slots
from tests.model import stage_bell as stages

PAIR, STAR, CHAIN = (-1, 0), (-1, 0, 0), (-1, 0, 1)
A, AB, BA, AA = ("a",), ("a", "b"), ("b", "a"), ("a", "a")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    # With these faults (None: without any), a model.
    model: Callable
    large: bool = False


@dataclasses.dataclass(frozen=True)
class Seeded:
    """A fault, and the name of the case in which it shows."""

    faults: object
    case: str

    @property
    def name(self):
        fields = dataclasses.asdict(self.faults)
        return next(name for name, is_on in fields.items() if is_on)


def _chunk_barrier(name, large=False, **scenario):
    scenario = steps.Scenario(**scenario)
    return Case(
        f"chunk barrier: {name}",
        lambda faults=None: steps.chunk_barrier(scenario, faults),
        large,
    )


def _talk(name, parents, *programs, large=False, **rest):
    if len(programs) == 1:
        programs *= len(parents)
    scenario = talks.Scenario(programs, parents, **rest)
    return Case(
        f"negotiation: {name}",
        lambda faults=None: talks.Negotiation(scenario, faults),
        large,
    )


def _members(ranks, steps, deaths, joins=0, leaves=0, large=False):
    scenario = members.Scenario(ranks, steps, deaths, joins, leaves)
    more = f", {joins} joins" if joins else ""
    more += f", {leaves} leave" if leaves else ""
    return Case(
        f"membership: {ranks} ranks, {steps} steps, {deaths} deaths{more}",
        lambda faults=None: members.Membership(scenario, faults),
        large,
    )


def _slots(name, size, *collectives, large=False):
    return Case(
        f"slots: {name}",
        lambda faults=None: slots.Slots(size, collectives, faults),
        large,
    )


def _stage(name, large=False, **scenario):
    scenario = stages.Scenario(**scenario)
    return Case(
        f"stage: {name}",
        lambda faults=None: stages.stage(scenario, faults),
        large,
    )


CASES = [
    _members(2, 2, 1),
    _members(3, 1, 1),
    _members(3, 2, 1),
    _members(3, 1, 2),
    _members(2, 2, 0, joins=1),
    _members(2, 2, 1, joins=1),
    _members(2, 2, 1, leaves=1),
    _members(2, 2, 1, joins=2, large=True),
    _members(2, 2, 1, joins=1, leaves=1, large=True),
    _members(3, 2, 1, leaves=1, large=True),
    _members(3, 2, 1, joins=1, large=True),
    _members(2, 2, 2, joins=1, large=True),
    _members(3, 2, 2, large=True),
    _members(4, 1, 2, large=True),
    _slots("2 ranks, 6 chunks", 2, slots.two_shots(6)),
    _slots("2 ranks, uneven moves", 2, slots.two_shots(2), slots.move(3, 0)),
    _slots("3 ranks, 4 chunks", 3, slots.two_shots(4)),
    _slots(
        "3 ranks, one after the other",
        3,
        slots.move(2, 0, 1),
        slots.ONE_SHOT,
        slots.scatter(2),
        slots.two_shots(1),
    ),
    _slots("3 ranks, 9 chunks", 3, slots.two_shots(9), large=True),
    _chunk_barrier("2 ranks, 3 chunks", chunks=3),
    _chunk_barrier("2 ranks, one is killed", chunks=2, killed=1),
    _chunk_barrier("2 ranks, one aborts", chunks=2, aborted=0),
    _chunk_barrier("3 ranks, 1 chunk", ranks=3),
    _chunk_barrier("3 ranks, one is killed", ranks=3, killed=2, large=True),
    Case("bell: 1 ringer, 3 times", lambda f=None: bells.ringers(1, 3, f)),
    Case("bell: 2 ringers, twice", lambda f=None: bells.ringers(2, 2, f)),
    Case("bell: 3 ringers", lambda f=None: bells.ringers(3, 2, f), True),
    _stage("1 other, 3 chunks", chunks=3),
    _stage("1 other leaves", chunks=2, leaves_after=1),
    _stage("1 other is killed", chunks=2, killed=True),
    _stage("an abort", chunks=2, leaves_after=1, hangs=True, aborted=True),
    _stage("1 other, another thread", helper=True),
    _stage("2 others, 1 leaves", others=2, leaves_after=0),
    _stage("3 others, 1 leaves", True, others=3, chunks=2, leaves_after=1),
    Case("stream: 5 bytes by 2", lambda f=None: bells.stream(5, 2, 1, f)),
    Case("stream: 7 bytes by 3", lambda f=None: bells.stream(7, 3, 2, f), True),
    _talk("2 ranks, 2 orders", PAIR, AB, BA),
    _talk("2 ranks, used again after a stall", PAIR, AA, stalls=1),
    _talk("2 ranks, they disagree", PAIR, AB, ("b", "a!")),
    _talk("2 ranks, one leaves early", PAIR, AB, BA, early=(0, 1), stalls=1),
    _talk("2 ranks, one is killed", PAIR, AB, BA, deaths=1, early=(0,)),
    _talk(
        "2 ranks, killed, inline",
        PAIR,
        AB,
        BA,
        deaths=1,
        early=(1,),
        inline=True,
    ),
    _talk("star of 3, 2 orders", STAR, AB, BA, AB),
    _talk("star of 3, stalled", STAR, A, AA, A, stalls=1, early=(0, 1, 2)),
    _talk("star of 3, killed", STAR, A, deaths=1, early=(0, 1, 2)),
    _talk(
        "star of 3, killed, short grace",
        STAR,
        A,
        deaths=1,
        early=(0, 1, 2),
        short_grace=True,
    ),
    _talk(
        "star of 3, killed, inline",
        STAR,
        A,
        deaths=1,
        early=(0, 1, 2),
        inline=True,
    ),
    _talk("chain of 3, 2 orders", CHAIN, AB, BA, AB),
    _talk("chain of 3, stalled", CHAIN, A, A, AA, stalls=1, early=(0, 1, 2)),
    _talk("chain of 3, killed", CHAIN, A, deaths=1, early=(0, 1, 2)),
    _talk(
        "chain of 3, killed, short grace",
        CHAIN,
        A,
        deaths=1,
        early=(0, 1, 2),
        short_grace=True,
    ),
    _talk(
        "chain of 3, killed, inline",
        CHAIN,
        A,
        deaths=1,
        early=(0, 1, 2),
        inline=True,
    ),
    _talk(
        "star of 3, 2 names, killed",
        STAR,
        AB,
        BA,
        AB,
        deaths=1,
        early=(1,),
        large=True,
    ),
    _talk(
        "chain of 3, 2 names, killed",
        CHAIN,
        AB,
        BA,
        AB,
        deaths=1,
        early=(1,),
        large=True,
    ),
    _talk(
        "chain of 3, 2 names, killed, inline",
        CHAIN,
        AB,
        BA,
        AB,
        deaths=1,
        early=(0,),
        inline=True,
        large=True,
    ),
    _talk(
        "4 ranks, killed",
        (-1, 0, 1, 0),
        A,
        deaths=1,
        early=(0, 3),
        inline=True,
        large=True,
    ),
]


def _seeded(faults, case, *names):
    return [Seeded(faults(**{name: True}), case) for name in names]


SEEDED = [
    *_seeded(
        members.Faults,
        "membership: 3 ranks, 1 steps, 1 deaths",
        "discards_for_who_is_behind",
        "commits_for_one",
        "goes_on_where_not_begun",
        "decides_early",
        "takes_torn_for_whole",
        "submits_what_is_discarded",
        "counts_what_is_discarded",
    ),
    *_seeded(
        members.Faults,
        "membership: 2 ranks, 2 steps, 1 deaths",
        "hides_what_has_begun",
    ),
    *_seeded(
        members.Faults,
        "membership: 2 ranks, 2 steps, 1 deaths, 1 joins",
        "lets_in_for_one",
        "agrees_on_nothing",
        "begins_at_0",
        "lets_in_again",
    ),
    *_seeded(
        slots.Faults,
        "slots: 2 ranks, uneven moves",
        "packs_without_waiting",
        "publishes_before_writing",
        "reduces_without_waiting",
        "unpacks_without_waiting",
        "moves_through_the_result",
        "waits_for_the_last_chunk",
    ),
    *_seeded(
        slots.Faults, "slots: 2 ranks, 6 chunks", "unpacks_after_reducing"
    ),
    *_seeded(
        steps.Faults,
        "chunk barrier: 2 ranks, 3 chunks",
        "looks_for_sleepers_first",
        "publishes_late",
        "announces_late",
        "sleeps_without_a_second_look",
        "counts_calls_too_late",
        "wakes_without_counting",
    ),
    *_seeded(
        steps.Faults,
        "chunk barrier: 2 ranks, one is killed",
        "forgets_itself",
        "never_asks_who_left",
    ),
    *_seeded(
        bells.Faults,
        "bell: 1 ringer, 3 times",
        "rings_only_once",
        "rings_before_writing",
        "wakes_up_after_looking",
        "falls_asleep_when_notified",
    ),
    *_seeded(
        bells.Faults,
        "stream: 5 bytes by 2",
        "waits_without_a_second_look",
        "waits_late",
        "asks_before_making_room",
        "publishes_before_writing",
        "makes_room_before_reading",
    ),
    *_seeded(
        stages.Faults,
        "stage: 1 other, 3 chunks",
        "looks_before_it_sleeps",
        "looks_after_its_steps",
        "rings_before_publishing",
    ),
    *_seeded(stages.Faults, "stage: 1 other leaves", "counts_no_one_who_left"),
    *_seeded(stages.Faults, "stage: 1 other is killed", "forgets_itself"),
    *_seeded(stages.Faults, "stage: an abort", "counts_no_abort"),
    *_seeded(
        stages.Faults, "stage: 1 other, another thread", "counts_no_tasks"
    ),
    *_seeded(
        talks.Faults,
        "negotiation: 2 ranks, 2 orders",
        "decides_too_early",
        "takes_an_end_for_a_death",
    ),
    *_seeded(
        talks.Faults,
        "negotiation: chain of 3, 2 orders",
        "passes_on_only_when_busy",
    ),
    *_seeded(
        talks.Faults,
        "negotiation: 2 ranks, used again after a stall",
        "counts_what_failed",
        "forgets_the_undecided",
    ),
    *_seeded(
        talks.Faults,
        "negotiation: 2 ranks, one is killed",
        "ignores_a_death_after_the_end",
    ),
    *_seeded(
        talks.Faults,
        "negotiation: star of 3, killed",
        "keeps_the_cause",
        "finishes_twice",
    ),
    # With patience, the control plane's word comes first.
    *_seeded(
        talks.Faults,
        "negotiation: star of 3, killed, short grace",
        "blames_who_left_first",
        "aborts_without_a_mark",
    ),
    *_seeded(
        talks.Faults,
        "negotiation: 2 ranks, one leaves early",
        "leaves_before_its_buckets",
    ),
]


def case(name):
    return next(case for case in CASES if case.name == name)
