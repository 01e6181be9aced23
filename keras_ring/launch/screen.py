"""Shows the ranks' lines, and keeps them in files."""

import functools
import socket
from collections import defaultdict
from collections.abc import Collection, Sequence

from keras_ring.launch import tensorflow_lines
from keras_ring.launch.json_format import JsonFormat
from keras_ring.launch.line_collapsing import Folding
from keras_ring.launch.lost_files import LostFiles
from keras_ring.launch.output import Line, RankStream, Sink, Tail
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.plan_outputs import RANK_0
from keras_ring.launch.text_format import LogFormat, TextFormat

_STREAMS = ("stdout", "stderr")


class Screen:
    """The output of the ranks, as it is shown.

    Standard output is shown line by line, because it may be data for another
    program. If the plan shows that of rank 0 only, its text lines have no
    prefix with the rank. On standard error, lines that ranks print alike are
    shown once, and lines of TensorFlow below the level of its own variable are
    not shown.

    Args:
        plan: `LaunchPlan` of the job.
        sinks: The `Sink`s for standard output and standard error.
    """

    def __init__(self, plan: LaunchPlan, sinks: Sequence[Sink]) -> None:
        self.format: LogFormat = (
            TextFormat(
                timestamp=plan.prefix_timestamp,
                ranks_of_stdout=plan.stdout != RANK_0,
            )
            if plan.log_source is None
            else JsonFormat(plan.log_source)
        )
        self._only_rank_0 = plan.stdout == RANK_0
        self._files = plan.output
        self._lost = LostFiles()
        self._sinks = dict(zip(_STREAMS, sinks, strict=True))
        self._level = tensorflow_lines.shown_level(plan.environment)
        self._tails: defaultdict[int, Tail] = defaultdict(Tail)
        self._folding = Folding(
            plan.size if plan.fold else 1,
            self._put_err,
            self.format.key,
        )

    @property
    def deadline(self) -> float | None:
        """The time of the next `show_due`, by `time.monotonic`, or `None`."""
        return self._folding.deadline

    def stream(self, rank: int, name: str, host: str = "") -> RankStream:
        """Returns the stream that shows lines of a rank, and keeps them.

        Args:
            rank: Integer, the rank.
            name: String, `"stdout"` or `"stderr"`.
            host: String, the name of its host. Defaults to this host.
        """
        show = self._show_out if name == "stdout" else self._show_err
        return RankStream(
            functools.partial(show, rank),
            self._files.open(rank, name, self._lost),
            self.format.recorder(rank, host or socket.gethostname(), name),
        )

    def _show_out(self, rank: int, line: Line) -> None:
        self._tails[rank].add(line.text)
        if rank and self._only_rank_0:
            return
        self._folding.show_until(rank)
        self._sinks["stdout"].put(self.format.shown_out(line.shown, rank))

    def _show_err(self, rank: int, line: Line) -> None:
        """Shows a line now or slightly later."""
        if tensorflow_lines.is_shown(line.text, self._level):
            self._tails[rank].add(line.text)
            self._folding.add(rank, line.shown)

    def show_due(self) -> None:
        """Shows lines that were held back for long enough."""
        self._folding.show_due()

    def show_all(self) -> None:
        """Shows all lines that were held back."""
        self._folding.show_all()

    def close(self) -> None:
        """Reports lost files. Call it after all streams have ended."""
        self._lost.tell_others()

    def tail(self, rank: int) -> tuple[str, ...]:
        """Returns the last lines of a rank."""
        return tuple(self._tails[rank].text())

    def _put_err(self, line: bytes, ranks: Collection[int]) -> None:
        self._sinks["stderr"].put(self.format.shown(line, ranks))
