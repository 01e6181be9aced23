"""Where the ranks' lines are shown, and as what."""

from collections.abc import Collection, Sequence
from datetime import datetime

from keras_ring.launcher import tensorflow_lines
from keras_ring.launcher.folding import Folding
from keras_ring.launcher.output import Sink, Tail
from keras_ring.launcher.plan import LaunchPlan
from keras_ring.launcher.summary import rank_list


def prefix(ranks: Collection[int], *, timestamp: bool) -> bytes:
    """Returns what goes in front of a line.

    Args:
        ranks: Those that have printed it.
        timestamp: Whether the local time comes first.
    """
    plain = f"[{rank_list(ranks)}] ".encode()
    if not timestamp:
        return plain
    now = datetime.now().isoformat(sep=" ", timespec="milliseconds")
    return now.encode() + b" " + plain


class Screen:
    """Shows what ranks print.

    Standard output is shown line by line: it may be data for another program.
    Of standard error, lines that ranks print alike are shown once, and those
    of TensorFlow that its own variable says nobody wants are not.

    Args:
        plan: Of the job.
        sinks: For standard output and standard error.
    """

    def __init__(self, plan: LaunchPlan, sinks: Sequence[Sink]) -> None:
        self._timestamp = plan.prefix_timestamp
        self._out, self._err = sinks
        self._level = tensorflow_lines.shown_level(plan.environment)
        self._tails = [Tail() for _ in range(plan.size)]
        self._folding = Folding(
            plan.size if plan.fold else 1,
            self._put_err,
            tensorflow_lines.without_header,
        )

    @property
    def deadline(self) -> float | None:
        """When `show_due` has something to do, by `time.monotonic`."""
        return self._folding.deadline

    def out(self, rank: int, line: bytes) -> None:
        """Shows a line of standard output."""
        self._folding.show_until(rank)
        self._tails[rank].add(line)
        self._put(self._out, line, (rank,))

    def err(self, rank: int, line: bytes) -> None:
        """Shows a line of standard error, now or a little later."""
        if tensorflow_lines.is_shown(line, self._level):
            self._tails[rank].add(line)
            self._folding.add(rank, line)

    def show_due(self) -> None:
        """Shows what was held back for long enough."""
        self._folding.show_due()

    def show_all(self) -> None:
        """Shows all that was held back."""
        self._folding.show_all()

    def tail(self, rank: int) -> tuple[str, ...]:
        """Returns the last lines of a rank."""
        return tuple(self._tails[rank].text())

    def _put_err(self, line: bytes, ranks: Collection[int]) -> None:
        self._put(self._err, line, ranks)

    def _put(self, sink: Sink, line: bytes, ranks: Collection[int]) -> None:
        sink.put(prefix(ranks, timestamp=self._timestamp) + line + b"\n")
