"""Finds faults of the job or of its timeline."""

from __future__ import annotations

from keras_ring.observe.timeline.model import Timeline


def killed(timeline: Timeline) -> list[int]:
    """Returns the ranks that have not ended their timeline."""
    return [rank.rank for rank in timeline.ranks if rank.ended_ns is None]


def faults(timeline: Timeline) -> list[tuple[str, list[int]]]:
    """Returns a text for each fault, and the ranks that it concerns."""
    found: dict[str, list[int]] = {}
    if timeline.missing:
        found["has left no timeline"] = list(timeline.missing)
    for rank in timeline.ranks:
        for text in _of_rank(rank.ended_ns, rank.reason, rank.dropped):
            found.setdefault(text, []).append(rank.rank)
        for note in rank.notes:
            found.setdefault(note, []).append(rank.rank)
    return list(found.items())


def _of_rank(ended: int | None, reason: str, dropped: int) -> list[str]:
    texts = []
    if ended is None:
        texts.append("no end: killed, or still running")
    if reason:
        texts.append(f"its last error: {reason}")
    if dropped:
        texts.append(f"no room for {dropped} spans, which are missing here")
    return texts
