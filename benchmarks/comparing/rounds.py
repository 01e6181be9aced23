"""Runs the systems in turn, round by round."""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.comparing import plan as plans_module
from benchmarks.comparing import processes
from keras_ring.bench.record import Record


def run_rounds(plans, sections, budget, *, rounds, deadline):
    """Runs every system once per round.

    In turn, so that what the machine does meanwhile hits all of them; each
    round begins with another one, so that none always runs after the same.

    Args:
        plans: The systems that can run.
        sections: The cases, by section.
        budget: How long each case is measured.
        rounds: How many rounds.
        deadline: Seconds for one system and round.

    Returns:
        All records, and (system, reason) of each run that failed. A run that
        fails leaves the records of what it had measured.
    """
    cases = [case for section in sections.values() for case in section]
    task = {
        "budget": dataclasses.asdict(budget),
        "cases": [case.to_dict() for case in cases],
    }
    records, failures = [], []
    for number in range(rounds):
        first = number % len(plans)
        for plan in [*plans[first:], *plans[:first]]:
            print(
                f"round {number + 1} of {rounds}: {plan.name}",
                file=sys.stderr,
                flush=True,
            )
            found, reason = run_system(plan, task, deadline)
            records += found
            if reason:
                done = f" ({len(found)} of {len(cases)} cases were measured)"
                failures.append((plan.name, reason + done))
    return records, failures


def run_system(plan, task, deadline):
    """Runs one system; returns its records and why it failed, if it did."""
    with tempfile.TemporaryDirectory(prefix="kr-compare-") as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(task))
        results = folder / "results"
        results.touch()
        command = (*plan.command, str(folder / "task.json"), str(results))
        environment = plans_module.environment_of(plan)
        reason = processes.run(command, environment, folder, deadline)
        lines = results.read_text().splitlines(keepends=True)
    # A line without an end was being written when its writer was ended.
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    records = [
        dataclasses.replace(Record.from_dict(fields), system=plan.name)
        for fields in whole
    ]
    return records, reason
