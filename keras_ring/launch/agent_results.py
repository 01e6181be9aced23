"""The files that the ranks of an agent have left for the launcher."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from keras_ring.launch import timelines
from keras_ring.launch.frames import encode
from keras_ring.launch.function_rank import RESULTS


@dataclass(frozen=True, kw_only=True)
class Results:
    """Files of ranks that have ended.

    Args:
        ranks: Tuple of integers, the ranks.
        elastic: Boolean, whether ranks may have had other numbers as well.
        flights: Path of the directory of their flight records, or `None`.
        files: Path of the directory of their functions' results. `None` if the
            ranks were not started.
        timeline: Path of the directory of their timelines, if the launcher does
            not see it; otherwise `None`.
    """

    ranks: tuple[int, ...]
    elastic: bool
    flights: Path | None
    files: Path | None
    timeline: Path | None

    def send_files(self, say: Callable[..., None]) -> None:
        """Sends the small files: flight records and results of functions."""
        if self.files is None:
            return
        if self.flights is not None:
            for rank in ("*",) if self.elastic else self.ranks:
                # The pattern includes the records of its process sets.
                name = f"flight.{rank}.*json"
                _send_matching(say, "flight", self.flights, name)
        _send_matching(say, "result", self.files, RESULTS)

    def timeline_messages(self) -> Iterator[bytes]:
        """Yields messages with the timelines, which may be long.

        Removes the timelines from this host afterwards.
        """
        for name, piece in timelines.pieces(self.timeline, self.ranks):
            yield encode("timeline", piece, name=name)
        if self.timeline is not None:
            timelines.remove(self.timeline)


def _send_matching(
    say: Callable[..., None], kind: str, directory: Path, pattern: str
) -> None:
    try:
        for path in directory.glob(pattern):
            say(kind, path.read_bytes(), name=path.name)
    except OSError as error:
        say("notes", lines=[f"cannot read {directory}: {error}"])
