"""Runs a case, and judges what came of it."""

import dataclasses
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.forked_ranks import ForkedRanks
from tests.harness.result import shared_memory_names
from tests.multiprocess.faults import catalogue, rank
from tests.multiprocess.faults.catalogue import Case

TIME_SCALE = float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
# A rank that has not ended after so many seconds hangs.
HANGS_AFTER = 20.0 * TIME_SCALE
STARTS_WITHIN = 60.0 * TIME_SCALE
_CGROUPS = Path("/sys/fs/cgroup/memory")

# Who is said to be the cause.
_BLAMED = re.compile(
    r"lost rank (\d+)|rank (\d+) ended with|rank (\d+) has shut down"
    r"|rank (\d+) (?:closed|has left)"
    r"|rank (\d+) (?:of \d+ did not join|did not come|did not connect)"
)


@dataclasses.dataclass
class Verdict:
    """What came of a case.

    Args:
        case: Which.
        seconds: From the fault to the error, for each survivor that had one.
        problems: What is wrong, a line each.
        hung: How many ranks had to be killed.
        leftovers: How many things were left behind.
        errors: What the survivors said.
    """

    case: Case
    seconds: list[float] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    hung: int = 0
    leftovers: int = 0
    errors: dict[int, str] = dataclasses.field(default_factory=dict)


def blamed(text: str) -> set[int]:
    """Returns the ranks that a text gives as the cause."""
    return {
        int(number)
        for match in _BLAMED.finditer(text)
        for number in match.groups()
        if number is not None
    }


def _essence(text: str) -> str:
    """Returns what is ours of an error that TensorFlow has wrapped."""
    lines = [line for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if blamed(line)]
    return " ".join((ours or lines)[-1:])[-300:]


@contextmanager
def _directory() -> Iterator[Path]:
    # Not a `TemporaryDirectory`, which the forked ranks would remove.
    path = Path(tempfile.mkdtemp(prefix="kr-fault-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def _memory_cgroup() -> Iterator[Path | None]:
    path = _CGROUPS / f"keras-ring-faults-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(32 << 20))
    except OSError:
        if path.is_dir():
            path.rmdir()
        yield None
        return
    try:
        yield path
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    # The last process of it may still be on its way out.
    end = time.monotonic() + 5.0
    while True:
        try:
            return path.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def run_case(case: Case) -> Verdict:
    """Runs a case in forked ranks."""
    verdict = Verdict(case)
    shared = shared_memory_names()
    descriptors = len(os.listdir("/proc/self/fd"))
    with (
        _directory() as directory,
        _memory_cgroup() as cgroup,
    ):
        environment = {
            "KERAS_RING_COLLECTIVE": case.collective,
            "KERAS_RING_HEARTBEAT_TIMEOUT": str(catalogue.HEARTBEAT_TIMEOUT),
            "KERAS_RING_START_TIMEOUT": str(
                catalogue.START_TIMEOUT * TIME_SCALE
            ),
            "KERAS_RING_FLIGHT_DIRECTORY": str(directory / "flight"),
        }
        if case.moment != "init":
            environment["KERAS_RING_START_TIMEOUT"] = str(STARTS_WITHIN)
        if cgroup and case.fault == "oom":
            environment["FAULTS_CGROUP"] = str(cgroup)
        job = ForkedRanks(
            case.size,
            directory,
            environment,
            case.hosts,
            lambda number, orders, tell: rank.run(case, number, orders, tell),
        )
        try:
            _harm(case, job, cgroup, verdict)
        finally:
            job.end()
        # For whoever reads the table.
        for number in range(case.size):
            verdict.errors[number] = (
                f"{job.ranks[number].exit_code}: "
                + str(job.outcome(number).get("type", ""))
                + " "
                + _essence(
                    str(
                        job.outcome(number).get("message") or job.stderr(number)
                    )
                )
            )
    left = shared_memory_names() - shared
    if len(os.listdir("/proc/self/fd")) != descriptors:
        left.add("a descriptor")
    verdict.leftovers = len(left)
    verdict.problems += [f"left behind: {name}" for name in sorted(left)]
    return verdict


def _harm(case, job, cgroup, verdict) -> None:
    victim = job.ranks[case.victim]
    survivors = [r for r in job.ranks if r is not victim]
    ready = job.wait(
        lambda: all("ready" in r.told for r in job.ranks),
        time.monotonic() + STARTS_WITHIN,
    )
    if not ready:
        verdict.problems.append("the ranks did not come to the moment")
        return
    job.wait(lambda: False, time.monotonic() + case.delay)
    if case.fault in catalogue.SLOW:
        return _be_slow(case, job, victim, verdict)
    if case.moment == "shutdown":
        # Sometimes the fault comes first, sometimes the end.
        for other in survivors:
            other.order("go")
        if case.fault not in ("exception",):
            if case.delay < 0.025:
                victim.order("go")
            job.wait(lambda: False, time.monotonic() + case.delay % 0.005)
    at = _inject(case, victim, cgroup)
    over = job.wait(
        lambda: all(r.exit_code is not None for r in survivors),
        at + HANGS_AFTER,
    )
    if not over:
        verdict.hung = sum(r.exit_code is None for r in survivors)
        verdict.problems.append(f"{verdict.hung} rank(s) hang")
    if case.fault == "SIGSTOP":
        victim.send(signal.SIGKILL)
    if not job.wait(lambda: victim.exit_code is not None, at + HANGS_AFTER):
        verdict.hung += 1
        verdict.problems.append("the victim hangs")
    if case.fault == "oom":
        # It takes a while to use so much memory.
        at = victim.ended_at
    for other in survivors:
        _judge(case, job, other, at, verdict)
    if victim.exit_code in (-signal.SIGSEGV, -signal.SIGBUS) and (
        case.fault != "SIGSEGV"
    ):
        told = job.stderr(case.victim)
        where = max(told.find("Fatal Python error"), 0)
        verdict.problems.append("the victim crashed: " + told[where:][:1500])


def _inject(case, victim, cgroup) -> float:
    at = time.monotonic()
    if case.fault.startswith("SIG"):
        victim.send(signal.Signals[case.fault])
        return at
    if case.fault == "oom" and cgroup is not None:
        try:
            (cgroup / "cgroup.procs").write_text(str(victim.pid))
        except ProcessLookupError:
            return at
    try:
        if case.fault != "exception":
            victim.order(case.fault)
        # Who is cut off goes on.
        victim.order("go")
    except BrokenPipeError:
        pass  # it has shut down already
    return at


def _be_slow(case, job, victim, verdict) -> None:
    if case.fault == "pause":
        victim.send(signal.SIGSTOP)
        job.wait(
            lambda: False,
            time.monotonic() + catalogue.HEARTBEAT_TIMEOUT / 2,
        )
        victim.send(signal.SIGCONT)
    victim.order("go")
    job.wait(lambda: False, time.monotonic() + HANGS_AFTER)
    for one in job.ranks:
        if one.exit_code != 0:
            verdict.hung += one.exit_code is None
            verdict.problems.append(
                f"rank {one.rank} ended with {one.exit_code}: "
                + str(job.outcome(one.rank))
            )


def _judge(case, job, survivor, at, verdict) -> None:
    outcome = job.outcome(survivor.rank)
    name = f"rank {survivor.rank}"
    if not outcome:
        verdict.problems.append(f"{name} left no word: {survivor.exit_code}")
        return
    text = str(outcome["message"])
    if case.moment == "shutdown" and not outcome["type"]:
        # Its end may have been agreed on before; but nobody else is to blame.
        said = blamed(job.stderr(survivor.rank)) - {case.victim}
        ended = {
            other.rank
            for other in job.ranks
            if other.exit_code == 0 and other.rank in said
        }
        said -= ended
        if said:
            verdict.problems.append(f"{name} blames {said}")
        _check_time(case, name, float(outcome["at"]) - at, verdict)
        return
    if not outcome["type"]:
        verdict.problems.append(f"{name} has seen no error")
        return
    _check_time(case, name, float(outcome["at"]) - at, verdict)
    verdict.seconds.append(float(outcome["at"]) - at)
    # Before the job begins, others too may not have come yet.
    lacks = case.moment == "init" and _lacks(text, case)
    # Its links are cut one after the other, and rank 0 tells those that are
    # still there what it sees of the first: that the other end has gone.
    one_end = (
        case.fault == "closed network"
        and case.victim == 0
        and len(blamed(text)) == 1
    )
    if blamed(text) != {case.victim} and not lacks and not one_end:
        verdict.problems.append(
            f"{name} blames {sorted(blamed(text))}: {text[-300:]}"
        )


def _lacks(text: str, case: Case) -> bool:
    """Whether a text counts the victim among those that did not come."""
    listed = re.search(r"ranks? ([\d, -]+) of \d+ did not join", text)
    if listed is None:
        return "rank 0 did not come" in text
    for part in listed.group(1).split(","):
        first, _, last = part.strip().partition("-")
        if int(first) <= case.victim <= int(last or first):
            return True
    return False


def _check_time(case, name, seconds, verdict) -> None:
    limit = case.limit * TIME_SCALE
    if case.moment == "shutdown":
        limit += 5.0  # Runtime::Shutdown: as long as a rank waits for the end
    if seconds > limit:
        verdict.problems.append(
            f"{name}: {seconds:.2f} s to the error, more than {limit:.2f}"
        )
