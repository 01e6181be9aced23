"""Runs the systems on the hosts of the lab, in turn."""

import dataclasses
import sys

from benchmarks.comparing import rounds
from benchmarks.hosting.figures import OURS, Measured


def run_place(place, plans, cases, budget, *, num_rounds, deadline):
    """Measures all systems at one place, round by round.

    In turn, so that what the machine does meanwhile hits all of them; each
    round begins with another one, so that none always runs after the same.
    What is compressed is measured of ours alone.

    Args:
        place: Where; its hosts are up.
        plans: The systems that can run.
        cases: What is measured.
        budget: How long each case is.
        num_rounds: How many rounds.
        deadline: Seconds for one system and round.

    Returns:
        What was measured, and (place, system, reason) of each run that failed.
    """
    measured, failures = [], []
    for number in range(num_rounds):
        first = number % len(plans)
        for plan in [*plans[first:], *plans[:first]]:
            wanted = [
                case
                for case in cases
                if case.compression == "none" or plan.name == OURS
            ]
            if not wanted:
                continue
            print(
                f"{place}: round {number + 1} of {num_rounds}: {plan.name}",
                file=sys.stderr,
                flush=True,
            )
            task = {
                "budget": dataclasses.asdict(budget),
                "cases": [case.to_dict() for case in wanted],
            }
            records, reason = rounds.run_system(plan, task, deadline)
            measured += [Measured(place, record) for record in records]
            if reason:
                done = f" ({len(records)} of {len(wanted)} cases were measured)"
                failures.append((str(place), plan.name, reason + done))
    return measured, failures
