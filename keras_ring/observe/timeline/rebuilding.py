"""Makes a timeline of the events in a file for a viewer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_ring.observe.timeline import about, words
from keras_ring.observe.timeline.model import (
    SPAN,
    Kind,
    RankTimeline,
    Timeline,
    TimelineError,
)


class _Numbers:
    """Numbers texts, from 1 on."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> int:
        """Returns the number of a text; 0 for an empty one."""
        if not text:
            return 0
        return self._numbers.setdefault(text, len(self._numbers) + 1)

    def texts(self) -> dict[int, str]:
        """Returns the texts by their numbers."""
        return {number: text for text, number in self._numbers.items()}


class _Rank:
    def __init__(self) -> None:
        self.facts: Mapping[str, Any] = {}
        self.records: list[tuple[int, ...]] = []
        self.names = _Numbers()
        self.threads = _Numbers()


class Rebuilding:
    """Takes the events of a file, in any order, and makes a timeline."""

    def __init__(self) -> None:
        self._processes: dict[Any, _Rank] = defaultdict(_Rank)

    def add(
        self,
        process: object,
        track: str,
        kind: Kind,
        category: str,
        title: str,
        times: tuple[int, int],
        arguments: Mapping[str, Any],
    ) -> None:
        """Adds an event, unless it is not an event of keras_ring.

        Args:
            process: Key of its process in the file.
            track: Label of its track.
            kind: Kind of the event.
            category: Category of the event.
            title: Title of the event.
            times: Begin and end of the event, in ns.
            arguments: Arguments of the event.
        """
        if category == about.CATEGORY:
            self._processes[process].facts = arguments
            return
        rank = self._processes[process]
        begin, end = times
        if kind == Kind.COUNTER:
            name, value = rank.names.of(title), int(arguments["value"])
            rank.records.append((kind, 0, 0, 0, name, -1, 0, begin, end, value))
            return
        phase = words.phase_of(category)
        if phase is None:
            return
        text, fields = words.fields_of(phase, title, arguments)
        rank.records.append(
            (
                kind,
                phase,
                fields["flags"],
                0 if track == category else rank.threads.of(track),
                rank.names.of(text),
                fields["peer"],
                fields["tag"],
                begin,
                end,
                fields["value"],
            )
        )

    def timeline(self) -> Timeline:
        """Returns the timeline of all events that were added.

        Raises:
            TimelineError: If no event describes a rank.
        """
        ranks = [
            _rank_timeline(rank)
            for rank in self._processes.values()
            if rank.facts
        ]
        if not ranks:
            raise TimelineError(
                "no rank of keras_ring in it; expected a file that keras-ring"
                " has written"
            )
        return Timeline(ranks=tuple(sorted(ranks, key=lambda r: r.rank)))


def _rank_timeline(rank: _Rank) -> RankTimeline:
    spans = np.array(rank.records, SPAN)
    return RankTimeline(
        **about.arguments_of(rank.facts),
        spans=spans[np.lexsort((-spans["end"], spans["begin"]))],
        names=rank.names.texts(),
        threads=rank.threads.texts(),
    )
