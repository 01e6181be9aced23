"""Runs a tier, lane by lane: `make test`, `make test-long`.

    python3 -m tests.tiers.gate [--long] [--seed N] [--plan] [--record]

says first what will run and about how long that takes, runs it, runs what
failed again, alone, and ends with a table. Needs nothing but Python, for the
first lane installs the rest.

The long tier takes hours. It may be stopped at any time: of the same commit,
the same command goes on after the last lane that passed.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.tiers import again, durations, lanes
from tests.tiers.changes import ROOT, changed_paths, head, is_clean
from tests.tiers.lanes import Lane, Skipped

# What `ctest` and `pytest` return if all ran and some failed, and pytest if
# there was nothing to run.
_TESTS_FAILED = {"ctest": 8, "pytest": 1}
_NO_TESTS = 5
FOLDER = ROOT / "build" / "tiers"


@dataclass
class Outcome:
    """What became of a tier.

    Args:
        took: Seconds of each lane that has run.
        failed: Tests that failed in their lanes.
        broken: Lanes that failed without saying which test did.
    """

    took: dict[str, float] = field(default_factory=dict)
    failed: list[again.Failure] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def _say(text: str = "") -> None:
    print(text, flush=True)


def run_lane(lane: Lane, outcome: Outcome) -> bool:
    """Runs a lane. Returns whether it passed."""
    _say(f"\n== {lane.name}: about {_minutes(lane.seconds)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    failures = FOLDER / f"{lane.name}.failures"
    failures.unlink(missing_ok=True)
    command = list(lane.command)
    if lane.kind == "pytest":
        command.append(f"--failures={failures}")
    environment = {**os.environ, **lane.environment}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if lane.tools:
        bin_directory = str(ROOT / ".venv/bin")
        environment["PATH"] = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env=environment).returncode
    took = time.monotonic() - began
    outcome.took[lane.name] = took
    # Where what they need is not installed, all may be left out.
    is_empty = lane.kind == "pytest" and code == _NO_TESTS
    ended = f"failed ({code})"
    if code == 0:
        ended = "passed"
    elif is_empty:
        ended = "passed, without a test,"
    _say(f"== {lane.name}: {ended} after {_minutes(took)}")
    if code == 0 or is_empty:
        return True
    found = []
    if code == _TESTS_FAILED.get(lane.kind):
        if lane.kind == "pytest":
            found = again.failures_of_pytest(lane, failures)
        else:
            found = again.failures_of_ctest(lane)
    if found:
        outcome.failed += found
    else:
        outcome.broken.append(lane.name)
    return False


def _minutes(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def judge(outcome: Outcome) -> bool:
    """Runs again what failed. Returns whether the tier has passed."""
    kept = FOLDER / "unsteady"
    shutil.rmtree(kept, ignore_errors=True)
    red = []
    if len(outcome.failed) > again.MOST:
        _say(f"\n{len(outcome.failed)} tests failed: too many to run again")
        red = outcome.failed
    else:
        for failure in outcome.failed:
            _say(f"\n== again, alone: {failure.name}")
            if again.passes(failure, kept):
                _say(
                    f"UNSTEADY: {failure.name} ({failure.lane.name}) failed"
                    f" once and passed {again.RUNS} times alone; outputs in"
                    f" {kept.relative_to(ROOT)}"
                )
                _tail(failure.output)
            else:
                red.append(failure)
    for failure in red:
        _say(f"FAILED: {failure.name} ({failure.lane.name})")
    for lane in outcome.broken:
        _say(f"FAILED: lane {lane}")
    return not red and not outcome.broken


def _tail(text: str, lines: int = 40) -> None:
    for line in text.splitlines()[-lines:]:
        _say(f"  | {line}")


def _show_plan(name: str, plan: list[Lane | Skipped], seed: int) -> None:
    seconds = sum(lane.seconds for lane in plan if isinstance(lane, Lane))
    _say(f"{name}, seed {seed}: about {_minutes(seconds)} on two cores")
    for lane in plan:
        if isinstance(lane, Skipped):
            _say(f"  {lane.name:18}      -  no change can touch it")
        else:
            _say(f"  {lane.name:18}{lane.seconds:5.0f} s  {lane.note}".rstrip())


def _show_times(plan: list[Lane | Skipped], outcome: Outcome) -> None:
    _say(f"\n{'lane':18} {'took':>7} {'expected':>9}")
    for lane in plan:
        if lane.name in outcome.took:
            took = outcome.took[lane.name]
            _say(f"{lane.name:18} {took:5.0f} s {lane.seconds:7.0f} s")
    _say(f"{'all':18} {sum(outcome.took.values()):5.0f} s")


class Progress:
    """Which lanes of the long tier have passed, of this commit and seed.

    Of a tree with changes nothing is kept, for what was tested is not known.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._commit = head() if is_clean() else ""
        self.seed: int | None = None
        self.passed: dict[str, float] = {}
        try:
            kept = json.loads(file.read_text())
            commit, seed, passed = (
                kept[name] for name in ("commit", "seed", "passed")
            )
        except (OSError, ValueError, LookupError, TypeError):
            return
        if self._commit and commit == self._commit:
            self.seed = seed
            self.passed = passed

    def add(self, lane: str, seconds: float, seed: int) -> None:
        """Keeps that a lane has passed."""
        self.passed[lane] = seconds
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(
            json.dumps(
                {"commit": self._commit, "seed": seed, "passed": self.passed}
            )
        )
        new.replace(self._file)

    def forget(self) -> None:
        """Has the next run begin anew."""
        self._file.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--long", action="store_true", help="the long tier")
    parser.add_argument("--seed", type=int, help="that of an earlier run")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="as if everything had changed; for the gate",
    )
    parser.add_argument("--plan", action="store_true", help="only says it")
    parser.add_argument(
        "--fuzz-seconds", type=int, default=300, help="for the long tier"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="keeps the times of lanes, and of sanitized tests, in "
        "tests/tiers/durations.json",
    )
    arguments = parser.parse_args()
    progress = Progress(FOLDER / "long.json") if arguments.long else None
    seed = arguments.seed
    if seed is None and progress is not None:
        seed = progress.seed
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 31)
    if progress is not None:
        os.environ["KERAS_RING_TEST_SEED"] = str(seed)
        plan = lanes.long(seed, arguments.fuzz_seconds)
        name = "The long tier"
    else:
        plan = lanes.gate(None if arguments.whole else changed_paths(), seed)
        name = "The gate"
    _show_plan(name, plan, seed)
    if arguments.plan:
        return 0
    try:
        return run(name, plan, seed, progress, arguments.record)
    except KeyboardInterrupt:
        _say(f"\n{name} was stopped.")
        if progress is not None:
            _say("The same command goes on after the last lane that passed.")
        return 130


def run(
    name: str,
    plan: list[Lane | Skipped],
    seed: int,
    progress: Progress | None = None,
    record: bool = False,
) -> int:
    """Runs the lanes of a tier.

    Args:
        name: Of the tier.
        plan: Its lanes.
        seed: What it was drawn by.
        progress: What has passed in an earlier run, and is passed over.
        record: Whether the times of lanes, and of sanitized tests, are kept
            as those to expect.

    Returns:
        The exit status: 0 if it passed.
    """
    outcome = Outcome()
    for lane in plan:
        if isinstance(lane, Skipped):
            continue
        if progress is not None and lane.name in progress.passed:
            _say(f"\n== {lane.name}: passed before")
            continue
        passed = run_lane(lane, outcome)
        if passed and progress is not None:
            progress.add(lane.name, outcome.took[lane.name], seed)
        if lane.needed and not passed:
            break
    if record:
        _record(plan, outcome)
    green = judge(outcome)
    _show_times(plan, outcome)
    if green:
        _say(f"\n{name} passed.")
        if progress is not None:
            progress.forget()
        return 0
    _say(f"\n{name} failed; seed {seed} draws the same tests again.")
    return 1


def _record(plan: list[Lane | Skipped], outcome: Outcome) -> None:
    """Keeps the times of lanes, and those of sanitized tests."""
    took = dict(outcome.took)
    for lane in plan:
        if lane.name in ("asan", "tsan") and lane.name in took:
            report = ROOT / "build" / lane.name / "tests.xml"
            seconds = durations.of_report(report.read_text())
            durations.update(lane.name, seconds)
            # They run two at a time.
            building = took.pop(lane.name) - sum(seconds.values()) / 2
            took[f"{lane.name}-build"] = max(building, 0.0)
    durations.update("lanes", took)


if __name__ == "__main__":
    sys.exit(main())
