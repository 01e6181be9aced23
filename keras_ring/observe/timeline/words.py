"""Translates spans to titles and arguments in a viewer, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_ring.observe.timeline.model import Phase

Arguments = dict[str, int | str]


class _Keys(NamedTuple):
    """Names of the fields of a span in a viewer; `""` for the default name."""

    value: str = "bytes"
    peer: str = "peer"
    name: str = ""


_TENSOR = _Keys(name="tensor")
_OTHERS = _Keys()
_KEYS: Mapping[int, _Keys] = {
    Phase.NEGOTIATE: _TENSOR,
    Phase.STEP: _Keys(value="step"),
    Phase.EPOCH: _Keys(value="epoch"),
    Phase.LATE: _Keys(value="late_ns", peer="last_rank"),
}
# Spans of these phases are shown by their names, all others by their phases.
_NAMED = (
    Phase.EXECUTE,
    Phase.EPOCH,
    Phase.DATA,
    Phase.CHECKPOINT,
    Phase.EVALUATE,
    Phase.PREDICT,
    Phase.USER,
    Phase.ALGORITHM,
)
_BY_WORD = {phase.name.lower(): int(phase) for phase in Phase}
_WORDS = {number: text for text, number in _BY_WORD.items()}


def word(phase: int) -> str:
    """Returns the word for a phase, which may be unknown to this version."""
    return _WORDS.get(phase) or f"phase {phase}"


def phase_of(text: str) -> int | None:
    """Returns the phase of a word, or `None` if the word is no phase."""
    known = _BY_WORD.get(text)
    if known is not None:
        return known
    start, _, number = text.partition(" ")
    if start == "phase" and number.isdecimal() and int(number) < 256:
        return int(number)
    return None


def title(phase: int, name: str, peer: int, value: int) -> str:
    """Returns the title of a span."""
    if phase == Phase.NEGOTIATE and name:
        return f"negotiate {name}"
    if phase == Phase.WAIT and peer >= 0:
        return f"wait for rank {peer}"
    if phase == Phase.LATE and peer >= 0:
        return f"rank {peer} was last"
    if phase == Phase.STEP:
        return f"step {value}"
    return name if name and phase in _NAMED else word(phase)


def arguments(phase: int, name: str, fields: Mapping[str, int]) -> Arguments:
    """Returns the arguments that a viewer shows of a span.

    Args:
        phase: Phase of the span.
        name: Name of the span, or `""`.
        fields: The `value`, `peer`, `tag` and `flags` of the span.
    """
    keys = _KEYS.get(phase, _OTHERS)
    found: Arguments = {}
    if name and phase not in _NAMED:
        found[keys.name or "name"] = name
    if fields["value"] or phase == Phase.STEP:
        found[keys.value] = fields["value"]
    if fields["flags"]:
        found["tensors"] = fields["flags"]
    if fields["peer"] >= 0:
        found[keys.peer] = fields["peer"]
    if fields["tag"]:
        found["collective"] = fields["tag"]
    return found


def fields_of(
    phase: int, shown: str, found: Mapping[str, Any]
) -> tuple[str, dict[str, int]]:
    """Returns the name and the fields of a span, from title and arguments.

    Args:
        phase: Phase of the span.
        shown: Title of the span.
        found: Arguments of the span.
    """
    keys = _KEYS.get(phase, _OTHERS)
    name = str(found.get(keys.name or "name", ""))
    if phase in _NAMED and shown != word(phase):
        name = shown
    return name, {
        "value": int(found.get(keys.value, 0)),
        "flags": int(found.get("tensors", 0)),
        "peer": int(found.get(keys.peer, -1)),
        "tag": int(found.get("collective", 0)),
    }
