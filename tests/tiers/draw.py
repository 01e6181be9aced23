"""Draws which tests the gate runs, within a budget of time.

What a change touches (`reach`) comes first. Of the tests that only stand on
what has changed a few are drawn, as a check on the map. What is not drawn runs
in the long tier. The seed is new in each run, so each run has other ones.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.tiers.reach import Reach

# Of the budget, what tests of rooms that have not changed get at most.
_SHARE_BELOW = 0.25
# Seconds of a test that nobody has measured yet.
UNKNOWN = 10.0


@dataclass(frozen=True)
class Drawn:
    """What a run has.

    Args:
        chosen: The tests, in the order in which they were drawn.
        left: Tests that could be touched and had no room.
        seconds: What the chosen ones take, one after the other.
    """

    chosen: tuple[str, ...]
    left: tuple[str, ...]
    seconds: float


def draw(
    tests: Iterable[str],
    reach: Callable[[str], Reach],
    durations: Mapping[str, float],
    budget: float,
    seed: int,
    must: Iterable[str] = (),
) -> Drawn:
    """Draws tests at random until the budget is spent.

    A test that does not fit is passed over, and a shorter one may be drawn
    instead; at least one test of each reach is drawn, however long.

    Args:
        tests: Names, of files or of tests.
        reach: How close the change is to a test.
        durations: Seconds that tests take.
        budget: Seconds, of the chosen ones together.
        seed: The same seed draws the same of the same tests.
        must: Those that run whatever they take, such as changed ones.
    """
    must = frozenset(must)
    generator = random.Random(seed)
    ordered = sorted(tests)
    generator.shuffle(ordered)
    chosen: list[str] = []
    left: list[str] = []
    spent = 0.0
    for level, limit in (
        (None, budget),
        (Reach.OWN, budget),
        (Reach.BELOW, budget * _SHARE_BELOW),
    ):
        first = True
        spent_here = 0.0
        for test in ordered:
            if level is None:
                wanted, fits = test in must, True
            else:
                seconds = durations.get(test, UNKNOWN)
                wanted = test not in must and reach(test) is level
                fits = first or (
                    spent_here + seconds <= limit and spent + seconds <= budget
                )
            if not wanted:
                continue
            if not fits:
                left.append(test)
                continue
            chosen.append(test)
            first = False
            spent += durations.get(test, UNKNOWN)
            spent_here += durations.get(test, UNKNOWN)
    return Drawn(tuple(chosen), tuple(left), spent)
