"""Runs a function or a script on several ranks, each a process."""

import contextlib
import json
import os
import pickle
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_ring.launch import child_process
from keras_ring.launch.job import Job
from keras_ring.launch.rank_process import RankProcess
from keras_ring.launch.summary import RankEnd, first_failure
from tests.harness import codes, prefork_server
from tests.harness.notify import FD_VARIABLE
from tests.harness.result import (
    ANY,
    RankResult,
    RanksFailed,
    Result,
    shared_memory_names,
)
from tests.harness.running import RunningRanks
from tests.harness.watch import Watch, Watched

_RANK_MAIN = str(Path(__file__).with_name("rank_main.py"))
_DUMP_BEFORE = 5.0


def _time_scale() -> float:
    return float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))


def _function_name(function: Callable[..., Any]) -> str:
    name = f"{function.__module__}:{function.__qualname__}"
    if "<" in function.__qualname__ or function.__module__ == "__main__":
        raise ValueError(
            f"{name} cannot be imported by a rank; define it at the top of a"
            " test module"
        )
    return name


def _prepare(
    target: Callable[..., Any],
    args: Sequence[Any],
    directory: Path,
    dump_after: float,
) -> None:
    """Writes what the ranks of a function read."""
    call = {
        "function": _function_name(target),
        "dump_after": dump_after,
        # The empty entry means the current directory: said in full.
        "path": [entry or os.getcwd() for entry in sys.path],
    }
    (directory / "call.json").write_text(json.dumps(call))
    (directory / "arguments.pickle").write_bytes(pickle.dumps(tuple(args)))


class _Notices:
    """One notification pipe per rank."""

    def __init__(self, num_ranks: int) -> None:
        pairs = [os.pipe() for _ in range(num_ranks)]
        self.readable = [pair[0] for pair in pairs]
        self.writable = [pair[1] for pair in pairs]

    def close(self) -> None:
        for fd in (*self.readable, *self.writable):
            os.close(fd)
        self.readable, self.writable = [], []


def _start(
    job: Job,
    rank: int,
    command: Sequence[str],
    env: Mapping[str, str],
    notice: int,
    directory: Path,
) -> RankProcess:
    environment = {**os.environ, **env, FD_VARIABLE: str(notice)}
    with (
        (directory / f"stdout.{rank}").open("wb") as stdout,
        (directory / f"stderr.{rank}").open("wb") as stderr,
    ):
        return job.start(
            rank,
            command,
            environment,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[notice],
        )


@contextlib.contextmanager
def _in_thread(
    on_start: Callable[[RunningRanks], None] | None, running: RunningRanks
) -> Iterator[list[BaseException]]:
    """Runs `on_start` beside the body; gives what it raised."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            if on_start is not None:
                on_start(running)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, name="on_start", daemon=True)
    thread.start()
    yield raised
    thread.join(timeout=10.0)
    if thread.is_alive():
        raised.append(TimeoutError("on_start goes on after the ranks ended"))


def _rank_result(
    process: RankProcess, watched: Watched, directory: Path
) -> RankResult:
    rank = process.rank
    result = RankResult(
        rank=rank,
        pid=process.pid,
        exit_code=watched.exit_codes.get(rank, -9),
        end_time=watched.end_times.get(rank, float("inf")),
        stdout=(directory / f"stdout.{rank}").read_text(errors="replace"),
        stderr=(directory / f"stderr.{rank}").read_text(errors="replace"),
        stopped=rank in watched.stopped,
    )
    path = directory / f"result.{rank}.pickle"
    if path.exists():
        record = pickle.loads(path.read_bytes())
        result.value = record.get("value")
        result.error_type = record.get("type", "")
        result.error = record.get("message", "")
        result.traceback = record.get("traceback", "")
    return result


def _first(
    job: Job, results: Sequence[RankResult], seen: Watched
) -> int | None:
    ends = [
        RankEnd(
            rank=result.rank,
            pid=result.pid,
            returncode=result.exit_code,
            seen=seen.looks.get(result.rank, time.time()),
            error=job.error(result.rank),
            stopped=result.stopped,
        )
        for result in results
        if result.exit_code != codes.SKIP
    ]
    first = first_failure(ends)
    return None if first is None else first.rank


def _problems(
    result: Result, expected: Callable[[int], Any], raised: Sequence[Any]
) -> list[str]:
    problems = [f"on_start raised {error!r}" for error in raised]
    if result.timed_out:
        problems.append("the deadline has passed")
    for rank in result.ranks:
        want = expected(rank.rank)
        if _differs(want, rank.exit_code):
            problems.append(
                f"rank {rank.rank}: exit code {rank.exit_code}, expected {want}"
            )
    if result.leftover:
        problems.append(f"{result.leftover} process(es) left running")
    if result.shared_memory:
        problems.append(f"left in /dev/shm: {result.shared_memory}")
    return problems


def _differs(want: Any, code: int) -> bool:
    if want is ANY:
        return False
    return code not in (want if isinstance(want, tuple) else (want,))


def run_ranks(
    target: Callable[..., Any] | str | Path,
    np: int,
    *,
    args: Sequence[Any] = (),
    deadline: float = 60.0,
    env: Mapping[str, str] | None = None,
    hosts: Sequence[int] | None = None,
    expect: Mapping[int, Any] | None = None,
    on_start: Callable[[RunningRanks], None] | None = None,
    fresh: bool = False,
) -> Result:
    """Runs a function or script on `np` ranks and checks how they end.

    The function is called without preparation: it calls `kr.init()` itself.
    It is found by module and name, its arguments and result are pickled. A
    rank that raises ends with code 10; one that raises `pytest.skip` or
    `unittest.SkipTest` ends with 77, and then the test is skipped. As soon as
    one rank fails unexpectedly the others get 2 s, then SIGTERM, then, 5 s
    later, SIGKILL; so they do at the deadline. Shortly before the deadline,
    ranks print the stacks of all their threads.

    A function is called in a process that has imported TensorFlow already; see
    `prefork_server`. A script runs in an interpreter of its own.

    Args:
        target: A function at the top of a test module, or a script's path.
        np: Number of ranks.
        args: Arguments of the function, or words for the script.
        deadline: Seconds for the whole run, multiplied by
            `KERAS_RING_TEST_TIME_SCALE`; more on a machine that is busy
            (`MachineTime`).
        env: Additional environment variables.
        hosts: For each rank, the number of the host that it pretends to be on.
        expect: Rank -> exit code, a tuple of them, or `ANY`; negative for a
            signal. Ranks that are not named must end with 0.
        on_start: Called in a thread once all ranks are started.
        fresh: Boolean, whether a function has an interpreter of its own, too.
            So it has with variables that are read before it is called.

    Returns:
        What the ranks returned and when they ended.

    Raises:
        RanksFailed: If a rank ends otherwise than expected, the deadline
            passes, `on_start` raises, a process or shared memory is left.
    """
    if hosts is not None and len(hosts) != np:
        raise ValueError(f"hosts has {len(hosts)} entries for {np} ranks")
    expected_codes = dict(expect or {})
    host_ids = None if hosts is None else [f"host{host}" for host in hosts]
    deadline *= _time_scale()

    def expected(rank: int) -> Any:
        return expected_codes.get(rank, codes.PASS)

    def unexpected(rank: int, code: int) -> bool:
        return code != codes.SKIP and _differs(expected(rank), code)

    shared_before = shared_memory_names()
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kr-test-"))
        )
        dump_after = max(deadline - _DUMP_BEFORE, deadline / 2)
        start = child_process.start
        if callable(target):
            _prepare(target, args, directory, dump_after)
            command = [str(directory)]
            if fresh or not prefork_server.can_start(env or {}):
                command = [sys.executable, _RANK_MAIN, *command]
            else:
                start = prefork_server.start
        else:
            command = [sys.executable, str(target), *map(str, args)]
        notices = _Notices(np)
        stack.callback(notices.close)
        job = stack.enter_context(Job(np, host_ids=host_ids, start=start))
        started = time.monotonic()
        ranks = [
            _start(
                job, rank, command, env or {}, notices.writable[rank], directory
            )
            for rank in range(np)
        ]
        running = RunningRanks(ranks)
        watch = Watch(ranks, notices.readable, running, deadline, unexpected)
        with _in_thread(on_start, running) as raised:
            watched = watch.run()
        leftover = job.kill_all()
        results = [_rank_result(rank, watched, directory) for rank in ranks]
        result = Result(
            ranks=results,
            start_time=started,
            wall=max(watched.end_times.values(), default=started) - started,
            first=_first(job, results, watched),
            timed_out=watched.timed_out,
            leftover=len(leftover),
            shared_memory=sorted(shared_memory_names() - shared_before),
        )
    _judge(result, expected, raised)
    return result


def _judge(
    result: Result, expected: Callable[[int], Any], raised: Sequence[Any]
) -> None:
    problems = _problems(result, expected, raised)
    skipped = [r for r in result.ranks if r.exit_code == codes.SKIP]
    others = [r for r in result.ranks if r.exit_code not in (0, codes.SKIP)]
    if skipped and not others and not result.timed_out:
        raise unittest.SkipTest(
            skipped[0].error or f"rank {skipped[0].rank} asked for it"
        )
    if problems:
        raise RanksFailed(result.report(problems), result)
