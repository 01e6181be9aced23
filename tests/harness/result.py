"""What a run of several ranks gives back, and how its failure reads."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LOG_BYTES = 4000


class _Any:
    """Equal to every exit code."""

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()


class RanksFailed(AssertionError):
    """Some rank ended otherwise than the test expects.

    Args:
        report: What happened, the first failing rank first.
        result: All that is known.
    """

    def __init__(self, report: str, result: "Result") -> None:
        super().__init__(report)
        self.result = result


@dataclass
class RankResult:
    """What one rank left.

    Args:
        rank: Index of the rank.
        pid: Its process id.
        exit_code: Negative for the signal that killed it.
        end_time: When the parent saw its end (`time.monotonic`).
        value: What the function returned.
        error_type: Class name of the exception that ended it, or `""`.
        error: Text of that exception.
        traceback: Its traceback, or `""`.
        stdout: What it printed.
        stderr: What it printed to standard error.
        stopped: Whether the harness had to end it.
    """

    rank: int
    pid: int
    exit_code: int
    end_time: float
    value: Any = None
    error_type: str = ""
    error: str = ""
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""
    stopped: bool = False

    def line(self) -> str:
        """Returns how the rank ended, on one line."""
        text = f"rank {self.rank} (pid {self.pid}): exit code {self.exit_code}"
        if self.exit_code < 0:
            text += f" ({signal.Signals(-self.exit_code).name})"
        if self.stopped:
            text += ", ended by the harness"
        if self.error_type:
            message = " ".join(self.error.split())[:300]
            text += f", {self.error_type}: {message}"
        return text


@dataclass
class Result:
    """What a run gives back.

    Args:
        ranks: One entry per rank.
        start_time: When the first rank was started (`time.monotonic`).
        wall: Seconds from then to the end of the last rank.
        first: Index of the rank that failed first; None if none did.
        timed_out: Whether the deadline passed.
        leftover: Number of processes that the ranks had left running.
        shared_memory: Names that appeared in /dev/shm and stayed.
    """

    ranks: list[RankResult]
    start_time: float
    wall: float
    first: int | None = None
    timed_out: bool = False
    leftover: int = 0
    shared_memory: list[str] = field(default_factory=list)

    @property
    def values(self) -> list[Any]:
        """What the function returned, by rank."""
        return [rank.value for rank in self.ranks]

    @property
    def exit_codes(self) -> list[int]:
        """The exit codes, by rank."""
        return [rank.exit_code for rank in self.ranks]

    @property
    def end_times(self) -> list[float]:
        """When each rank ended, by rank (`time.monotonic`)."""
        return [rank.end_time for rank in self.ranks]

    def report(self, problems: Sequence[str]) -> str:
        """Returns the story of a failed run, the first failing rank first."""
        order = sorted(
            self.ranks, key=lambda rank: (rank.rank != self.first, rank.rank)
        )
        lines = [*problems, f"after {self.wall:.1f} s:"]
        lines += [f"  {rank.line()}" for rank in order]
        for rank in order:
            for name in ("traceback", "stdout", "stderr"):
                text = getattr(rank, name)[-_LOG_BYTES:].strip()
                if text:
                    lines += [f"--- rank {rank.rank} {name}", text]
        return "\n".join(lines)


def shared_memory_names() -> set[str]:
    """Returns the names of ours in /dev/shm."""
    return {
        path.name
        for path in Path("/dev/shm").iterdir()
        if "keras_ring" in path.name or "keras-ring" in path.name
    }
