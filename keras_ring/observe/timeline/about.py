"""Properties of a rank in a timeline, as the arguments of an instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_ring.observe.timeline.model import RankTimeline
from keras_ring.observe.timeline.words import Arguments

CATEGORY = "about"
_SETTING = "KERAS_RING_"
_NUMBERS = (
    "rank",
    "size",
    "local_rank",
    "pid",
    "started_unix_ns",
    "started_ns",
    "offset_ns",
    "dropped",
)
_TEXTS = ("host", "version", "reason", "command")
_OPTIONAL = ("error_ns", "ended_ns")
_NOTES = "notes"


def title(rank: RankTimeline) -> str:
    """Returns the name of the rank in a viewer."""
    return (
        f"rank {rank.rank} ({rank.host})"
        if rank.host
        else (f"rank {rank.rank}")
    )


def clock(rank: RankTimeline) -> str:
    """Returns a text on how exactly the clock of a rank is known."""
    if rank.error_ns is None:
        return "its clock was not compared with others"
    return f"clock within {rank.error_ns / 1e3:.1f} us"


def facts(rank: RankTimeline) -> Arguments:
    """Returns the properties of a rank, without its spans.

    Unknown properties are left out: `error_ns` if its clock was not compared,
    `ended_ns` if it was killed.
    """
    found: Arguments = {key: getattr(rank, key) for key in _NUMBERS}
    found |= {key: getattr(rank, key) for key in _TEXTS if getattr(rank, key)}
    for key in _OPTIONAL:
        if getattr(rank, key) is not None:
            found[key] = getattr(rank, key)
    if rank.notes:
        found[_NOTES] = "; ".join(rank.notes)
    return found | dict(rank.settings)


def arguments_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `RankTimeline` in the result of `facts`."""
    return {
        **{key: int(found.get(key, 0)) for key in _NUMBERS},
        **{key: str(found.get(key, "")) for key in _TEXTS},
        **{key: int(found[key]) if key in found else None for key in _OPTIONAL},
        "notes": tuple(str(found.get(_NOTES, "")).split("; "))
        if found.get(_NOTES)
        else (),
        "settings": {
            key: str(value)
            for key, value in found.items()
            if key.startswith(_SETTING)
        },
    }
