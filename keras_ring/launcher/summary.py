"""Which rank failed first, and how that is told."""

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from keras_ring._launch_protocol.error_file import RankError
from keras_ring.live.words import rank_runs

_SIGNAL_BASE = 128


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank ended.

    Args:
        rank: Index of the rank.
        pid: Its process id.
        returncode: Exit code; negative for the signal that killed it.
        seen: When the launcher saw it, in seconds since the epoch. Ranks that
            were seen at one look have the same time.
        error: The exception that the rank wrote down.
        stopped: Whether it ended only after the launcher had told it to.
        killed: Why the launcher had then killed whatever ran on; `""` if it
            had not.
        host: Where it ran, in a job on several hosts.
        lost: With what it was lost, so that nothing is known of its end.
    """

    rank: int
    pid: int
    returncode: int
    seen: float
    error: RankError | None = None
    stopped: bool = False
    killed: str = ""
    host: str = ""
    lost: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code as a shell gives it."""
        if self.returncode < 0:
            return _SIGNAL_BASE - self.returncode
        return self.returncode

    @property
    def signal_name(self) -> str:
        """The signal that killed it or, in a shell, its command; or `""`."""
        number = self.exit_code - _SIGNAL_BASE
        try:
            return signal.Signals(number).name if number > 0 else ""
        except ValueError:
            return ""

    @property
    def slow_to_leave(self) -> bool:
        """Whether it failed by itself, but was still there to be stopped."""
        return (
            self.stopped
            and self.error is not None
            and not self.error.caught
            and not self.error.peer_lost
        )

    @property
    def was_killed(self) -> bool:
        """Whether the launcher had to kill it."""
        return bool(self.killed) and self.returncode == -signal.SIGKILL

    @property
    def where(self) -> str:
        """Returns its process, such as `"pid 7"` or `"host h2, pid 7"`."""
        place = [f"host {self.host}"] if self.host else []
        return ", ".join([*place, *([f"pid {self.pid}"] if self.pid else [])])

    def describe(self) -> str:
        """Returns what happened, such as `"was killed by SIGKILL"`."""
        if self.lost:
            return f"was lost {self.lost}"
        if self.slow_to_leave:
            return "failed, and was ended by keras-ring"
        if self.returncode < 0:
            return f"was killed by {self.signal_name or -self.returncode}"
        text = f"exited with code {self.returncode}"
        if self.signal_name:
            text += f" (its command was killed by {self.signal_name})"
        return text


def first_failure(ends: Sequence[RankEnd]) -> RankEnd | None:
    """Returns the rank whose failure came before the others'.

    The order in which ranks are seen to end is not that in which they failed:
    a rank with an exception may take long to leave, while those that lose it
    leave at once. So

    * an exception that only tells of a lost peer never comes before another
      failure;
    * a rank that wrote an exception failed when it wrote it;
    * of failures seen at one look, a signal comes before an exception, as a
      signal is never a consequence, and an earlier exception before a later.

    Args:
        ends: How the ranks ended, in any order.
    """
    failed = [end for end in ends if end.returncode != 0]
    own = [end for end in failed if not end.stopped or end.slow_to_leave]
    looks = sorted({end.seen for end in failed})

    def order(end: RankEnd) -> tuple[bool, float, bool, float, int]:
        when = min(end.seen, end.error.time) if end.error else end.seen
        return (
            end.error is not None and end.error.peer_lost,
            next(look for look in looks if look >= when),
            not end.signal_name or end.slow_to_leave,
            when,
            end.rank,
        )

    return min(own or failed, key=order, default=None)


def job_exit_code(first: RankEnd | None) -> int:
    """Returns the launcher's exit code, given the first failure."""
    if first is None:
        return 0
    # The code of such a rank is that of the launcher's signal.
    return 1 if first.slow_to_leave else first.exit_code


def failure_lines(
    first: RankEnd,
    ends: Sequence[RankEnd],
    tail: Sequence[str] | None,
    seconds: float,
) -> list[str]:
    """Returns the report on a failed job, line by line: the cause first.

    Args:
        first: The rank that failed first.
        ends: How all ranks ended.
        tail: The last lines of output of the first; None where that goes
            elsewhere. They are left out where it has told why it ends: that
            was printed already.
        seconds: How long the job had run.
    """
    lines = []
    if first.error is not None:
        alike = [
            end.rank
            for end in ends
            if end.error is not None and str(end.error) == str(first.error)
        ]
        lines.append(f"{rank_names(alike)} raised {_told(first.error)}")
    lines.append(
        f"rank {first.rank} ({first.where}) {first.describe()}"
        f" after {seconds:.1f} s; it failed first"
    )
    untold = first.error is None or first.error.caught
    if untold and tail is not None:
        if tail:
            lines.append(f"last output of rank {first.rank}:")
            lines += [f"  | {line}" for line in tail]
        else:
            lines.append(f"rank {first.rank} printed nothing")
    others: dict[str, list[int]] = {}
    for end in sorted(ends, key=lambda end: end.rank):
        if end is not first:
            others.setdefault(_other_text(end, first), []).append(end.rank)
    for text, ranks in others.items():
        if len(ranks) > 1 and text.startswith("was "):
            text = f"were {text.removeprefix('was ')}"
        lines.append(f"{rank_names(ranks)} {text}")
    return lines


def killed_lines(ends: Sequence[RankEnd]) -> list[str]:
    """Returns which ranks the launcher had to kill, and when."""
    killed: dict[str, list[int]] = {}
    for end in sorted(ends, key=lambda end: end.rank):
        if end.was_killed:
            killed.setdefault(end.killed, []).append(end.rank)
    return [
        f"{rank_names(ranks)} had to be killed {why}"
        for why, ranks in killed.items()
    ]


def failure_keys(
    first: RankEnd, tail: Sequence[str], seconds: float
) -> dict[str, object]:
    """Returns what a program may want to know of a failed job, for JSON.

    Args:
        first: The rank that failed first.
        tail: Its last lines of output.
        seconds: How long the job had run.
    """
    error = first.error
    keys: dict[str, object] = {
        "event": "failure",
        "rank": first.rank,
        "pid": first.pid or None,
        "exit_code": first.exit_code,
        "signal": first.signal_name or None,
        "lost": bool(first.lost),
        "seconds": round(seconds, 3),
        "error": error and str(error),
        "tail": list(tail),
    }
    if first.host:
        keys["host"] = first.host
    if error is not None and error.traceback:
        keys["exception"] = error.traceback.rstrip()
    return keys


def rank_names(ranks: Collection[int]) -> str:
    """Returns ranks in words, such as `"rank 3"` or `"ranks 0, 2-7"`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {rank_list(ranks)}"


def rank_list(ranks: Collection[int]) -> str:
    """Returns ranks with neighbours folded, such as `"0, 2-7"`."""
    return ", ".join(
        str(low) if low == high else f"{low}-{high}"
        for low, high in rank_runs(ranks)
    )


def _other_text(end: RankEnd, first: RankEnd) -> str:
    what = end.describe()
    if end.lost:
        return what
    if end.stopped and not end.slow_to_leave:
        what = "was then ended by keras-ring"
        if end.was_killed:
            what = f"had to be killed {end.killed}"
    if end.error is None:
        return what
    if first.error is not None and str(end.error) == str(first.error):
        return what
    if end.error.peer_lost and re.search(
        rf"\brank {first.rank}\b", end.error.cause
    ):
        return f"{what}, having lost rank {first.rank}"
    return f"{what}: {_told(end.error)}"


def _told(error: RankError) -> str:
    caught = ", which its program caught" if error.caught else ""
    return f"{error}{caught}"
