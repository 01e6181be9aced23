"""Tiers of tests: docs/testing.md and tests/tiers."""

import hashlib
import importlib.util
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

# Behind what is installed: in the lane of TensorFlow 2.15, keras_ring is not
# that of the checkout.
_ROOT = str(Path(__file__).parents[1])
if _ROOT not in sys.path:
    sys.path.append(_ROOT)

from tests import tiers  # noqa: E402
from tests.tiers import durations, path_map, selection  # noqa: E402
from tests.tiers.changes import changed_paths, head  # noqa: E402
from tests.tiers.environments import ENVIRONMENTS  # noqa: E402

# Its tests have an environment of their own.
collect_ignore = [
    folder
    for folder, framework in (
        ("pytorch", "torch"),
        ("with_jax", "jax"),
        ("with_mxnet", "mxnet"),
    )
    if not importlib.util.find_spec(framework)
]

# A shell has what it starts in the background ignore Ctrl-C, and so would all
# that tests start, of which some are sent it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Likewise nohup and the end of a terminal, except that tests themselves, and
# their workers, go on ignoring it: programs that are started do not inherit a
# handler.
_NOHUP_VARIABLE = "KERAS_RING_TEST_NOHUP"
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    os.environ[_NOHUP_VARIABLE] = "1"
if _NOHUP_VARIABLE in os.environ:
    signal.signal(signal.SIGHUP, lambda *_: None)

_IN_MAIN_LANE = importlib.util.find_spec("tf_keras") is not None
# Whole folders of what needs no ranks; other tests ask for it by mark.
_QUICK = ("unit", "lint", "tiers")
# Where tests have ranks that are forks of prefork servers.
_RANKS = ("harness", "keras", "multiprocess")
# Tests. Of so many, some have ranks.
_MANY = 300
# Seconds. A quick test that takes longer is none.
_QUICK_LIMIT = 10.0 * float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
# Where tests need the lab. There is one: they go to one worker, from the start.
_LAB = ("hosts", "engines")
_BEGAN_VARIABLE = "KERAS_RING_TEST_BEGAN"
_NO_TIME = "no time is left"


def pytest_addoption(parser):
    parser.addoption(
        "--tier",
        choices=tiers.TIERS,
        default="gate",
        help="quick: before a commit; gate: what a change must pass; pulled:"
        " what changes pull in addition; long: all",
    )
    parser.addoption(
        "--pull",
        default=None,
        help="parts of the long tier, as `faults,parity`: for the gate, which"
        " has none, and for the pulled tier instead of those that changes pull",
    )
    parser.addoption(
        "--draw",
        type=int,
        metavar="SEED",
        help="of the gate, the files that changes touch and a few others, drawn"
        " by this seed; of the pulled tier, the order",
    )
    parser.addoption(
        "--failures",
        type=Path,
        help="a file that gets what has failed, as lines of JSON",
    )
    parser.addoption(
        "--minutes",
        type=float,
        help="no test starts later than so many minutes after the first; the"
        " others are skipped, and counted at the end",
    )


def pytest_configure(config):
    for line in (
        "quick: also in the quick tier",
        "long(part): left out of the gate, pulled by changes of what it"
        " protects",
        "longer(part): does more in the tiers that have the part",
        "alone: nothing may run beside it",
        "gate: not in the quick tier, though its folder is",
    ):
        config.addinivalue_line("markers", line)
    tier = config.getoption("--tier")
    os.environ[tiers.TIER_VARIABLE] = tier
    if config.getoption("--minutes") is not None:
        _began()  # before there are workers
    os.environ[tiers.PULLED_VARIABLE] = " ".join(sorted(_pulled(config)))
    if tier == "long":
        fresh = str(random.SystemRandom().randrange(1 << 31))
        os.environ.setdefault(tiers.SEED_VARIABLE, fresh)


def _pulled(config) -> frozenset[str]:
    tier = config.getoption("--tier")
    if tier == "quick":
        return path_map.NONE
    if tier == "long":
        return path_map.ALL
    if (words := config.getoption("--pull")) is not None:
        parts = frozenset(filter(None, words.split(",")))
        if unknown := parts - path_map.ALL:
            raise pytest.UsageError(f"--pull: no part {sorted(unknown)}")
        return parts
    if tier == "gate":
        return path_map.NONE
    return path_map.pulled_by(changed_paths())


def pytest_report_header(config):
    pulled = [part for part in path_map.PARTS if part in _pulled(config)]
    lines = [
        f"tier: {config.getoption('--tier')};"
        f" parts of the long tier: {', '.join(pulled) or 'none'}"
    ]
    if tiers.SEED_VARIABLE in os.environ:
        lines.append(
            f"seed: {tiers.SEED_VARIABLE}={os.environ[tiers.SEED_VARIABLE]}"
        )
    return lines


def _folder(item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _is_quick(item) -> bool:
    if any(map(item.get_closest_marker, ("long", "alone", "gate"))):
        return False
    return (
        _folder(item) in _QUICK or item.get_closest_marker("quick") is not None
    )


def _file(item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()


def _order(items, seconds) -> None:
    """Sorts files, the longest first: what two workers share ends with short
    ones. Those of the lab have one worker, so they begin.
    """

    def place(item):
        file = _file(item)
        return _folder(item) not in _LAB, -seconds.get(file, 0.0), file

    # What a file has stays in its order.
    items.sort(key=place)


def _drawn_place(item, seed: object) -> str:
    """Files in an order that the seed draws, since some may have no time."""
    return hashlib.sha256(f"{seed} {_file(item)}".encode()).hexdigest()


def _is_wanted(item, tier: str, pulled: frozenset[str]) -> bool:
    if tier == "quick":
        return _is_quick(item)
    mark = item.get_closest_marker("long")
    longer = item.get_closest_marker("longer")
    for each in filter(None, (mark, longer)):
        if each.args[0] not in path_map.PARTS:
            raise pytest.UsageError(f"{item.nodeid}: no part {each.args[0]}")
    if tier == "pulled" and mark is None:
        return longer is not None and longer.args[0] in pulled
    return mark is None or mark.args[0] in pulled


def pytest_collection_modifyitems(config, items):
    pulled = _pulled(config)
    tier = config.getoption("--tier")
    seed = config.getoption("--draw")
    drawn = _drawn_files(tier, seed)
    selected, left_out = [], []
    for item in items:
        # Keras 2 has a lane of its own; here it is on the newest TensorFlow.
        if _IN_MAIN_LANE and item.path.parent.name == "keras2":
            item.add_marker(pytest.mark.long("parity"))
        wanted = _is_wanted(item, tier, pulled) and (
            drawn is None or _file(item) in drawn
        )
        (selected if wanted else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if tier == "pulled":
        by = head() if seed is None else seed
        selected.sort(key=lambda item: _drawn_place(item, by))
    else:
        _order(selected, durations.read("files"))
    items[:] = selected


def _drawn_files(tier: str, seed: int | None) -> set[str] | None:
    """Returns the files that a draw has, or None if nothing is drawn."""
    if tier != "gate" or seed is None:
        return None
    paths = changed_paths()
    chosen: set[str] = set()
    for folder in (None, *ENVIRONMENTS):
        files = selection.python_files(paths, seed, folder)
        chosen.update(files.chosen)
    return chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distributes files, as `--dist=loadfile`, but those of the lab as one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            folder = nodeid.removeprefix("tests/").partition("/")[0]
            return "lab" if folder in _LAB else super()._split_scope(nodeid)

    return Scheduling(config, log)


def pytest_collection_finish(session):
    # So that the first test with ranks does not wait for their imports. Of few
    # tests it may be that none has ranks.
    if len(session.items) >= _MANY and not session.config.option.collectonly:
        from tests.harness import prefork_server

        prefork_server.prepare()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.time() > _began() + 60.0 * minutes:
        pytest.skip(_NO_TIME)
    # The imports are no part of the time that a quick test has.
    if item.config.getoption("--tier") == "quick" and _folder(item) in _RANKS:
        from tests.harness import prefork_server

        prefork_server.wait()


def _began() -> float:
    """The time of the run's first test, of all its workers."""
    return float(os.environ.setdefault(_BEGAN_VARIABLE, str(time.time())))


def _keep_failures(stats, file: Path) -> None:
    reports = [*stats.get("failed", ()), *stats.get("error", ())]
    with file.open("w") as output:
        for report in reports:
            sections = [f"-- {name}\n{text}" for name, text in report.sections]
            text = "\n".join([report.longreprtext, *sections])
            line = {"test": report.nodeid, "output": text}
            output.write(json.dumps(line) + "\n")


def pytest_terminal_summary(terminalreporter, config):
    if (file := config.getoption("--failures")) is not None:
        _keep_failures(terminalreporter.stats, file)
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(_NO_TIME in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(
            f"{count} tests had no time within --minutes; they are to be run by"
            " hand, without that option: docs/testing.md",
            yellow=True,
        )


def pytest_sessionfinish(session, exitstatus):
    nothing = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    if nothing and session.config.getoption("--tier") == "pulled":
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if (
        item.config.getoption("--tier") == "quick"
        and call.when == "call"
        and report.passed
        and call.duration > _QUICK_LIMIT
    ):
        report.outcome = "failed"
        report.longrepr = (
            f"took {call.duration:.1f} s, and a quick test may take"
            f" {_QUICK_LIMIT:.0f}: mend it, or have it in the gate alone"
        )
    return report
