"""Finds the rank that failed first, and reports the failure."""

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from keras_ring.observe.words import rank_runs
from keras_ring.protocol.error_file import RankError

_SIGNAL_BASE = 128


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """The end of one rank.

    Args:
        rank: Integer, the rank.
        pid: Integer, its process id.
        returncode: Integer, the exit code; negative for the signal that killed
            it.
        seen: Float, the time at which the launcher saw the end, in seconds
            since the epoch. Ranks that were seen together have the same time.
        error: `RankError`, the exception that the rank recorded, or `None`.
        stopped: Boolean, whether it ended only after the launcher had sent it a
            signal.
        killed: String, the reason why the launcher had killed the remaining
            ranks; `""` if it had not.
        host: String, the host on which it ran, in a job on several hosts.
        lost: String, such as `"with its host: ..."`, if the rank was lost and
            its end is unknown. Otherwise `""`.
        left_behind: Boolean, whether the job was to go on without it.
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
    left_behind: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code as a shell reports it."""
        if self.returncode < 0:
            return _SIGNAL_BASE - self.returncode
        return self.returncode

    @property
    def signal_name(self) -> str:
        """The name of the signal that killed it or its shell's command.

        It is `""` if there was no signal.
        """
        number = self.exit_code - _SIGNAL_BASE
        try:
            return signal.Signals(number).name if number > 0 else ""
        except ValueError:
            return ""

    @property
    def slow_to_leave(self) -> bool:
        """Returns whether it failed by itself, but still ran when stopped."""
        return (
            self.stopped
            and self.error is not None
            and not self.error.caught
            and not self.error.peer_lost
        )

    @property
    def was_killed(self) -> bool:
        """Returns whether the launcher had to kill it."""
        return bool(self.killed) and self.returncode == -signal.SIGKILL

    @property
    def where(self) -> str:
        """The host and process id, such as `"pid 7"` or `"host h2, pid 7"`."""
        host = [f"host {self.host}"] if self.host else []
        return ", ".join([*host, *([f"pid {self.pid}"] if self.pid else [])])

    def describe(self) -> str:
        """Returns a description, such as `"was killed by SIGKILL"`."""
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
    """Returns the rank that failed first, or `None`.

    Ranks may be seen to end in another order than that of their failures: a
    rank with an exception may take long to end, while the ranks that lose it
    end at once. So

    * an exception that only reports a lost peer never comes before another
      failure;
    * a rank that recorded an exception failed when it recorded it;
    * among failures seen together, a signal comes before an exception, because
      a signal is never a consequence, and an earlier exception before a later
      one;
    * a rank that an elastic job has gone on without is no failure: what ended
      the job came after it.

    Args:
        ends: Sequence of `RankEnd`s, in any order.
    """
    went_on = any(not end.left_behind for end in ends)
    failed = [
        end
        for end in ends
        if end.returncode != 0 and not (end.left_behind and went_on)
    ]
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
    # The exit code of such a rank is that of the launcher's signal.
    return 1 if first.slow_to_leave else first.exit_code


def failure_lines(
    first: RankEnd,
    ends: Sequence[RankEnd],
    tail: Sequence[str] | None,
    seconds: float,
) -> list[str]:
    """Returns the lines of the report on a failed job, the cause first.

    Args:
        first: `RankEnd` of the rank that failed first.
        ends: Sequence of the `RankEnd`s of all ranks.
        tail: Sequence of strings, the last lines of output of `first`, or
            `None`. They are left out if its exception ended it, because that
            was printed already.
        seconds: Float, the duration of the job until the failure.
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
    """Returns lines that name the ranks that were killed, and the reasons."""
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
    """Returns the fields of a JSON record of a failed job.

    Args:
        first: `RankEnd` of the rank that failed first.
        tail: Sequence of strings, the last lines of its output.
        seconds: Float, the duration of the job until the failure.
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
    """Returns a text for ranks, such as `"rank 3"` or `"ranks 0, 2-7"`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {rank_list(ranks)}"


def rank_list(ranks: Collection[int]) -> str:
    """Returns a list of ranks with their ranges, such as `"0, 2-7"`."""
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
