"""What a span is called in a viewer, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_ring._timeline.model import Phase

Arguments = dict[str, int | str]


class _Keys(NamedTuple):
    """What the numbers of a span of some phase mean; `""` for nothing."""

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
# These are called by the name that they have; all others by their phase.
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
    """Returns the word for a phase, also for one that is not known yet."""
    return _WORDS.get(phase) or f"phase {phase}"


def phase_of(text: str) -> int | None:
    """Returns the phase of such a word; `None` if it is none."""
    known = _BY_WORD.get(text)
    if known is not None:
        return known
    start, _, number = text.partition(" ")
    if start == "phase" and number.isdecimal() and int(number) < 256:
        return int(number)
    return None


def title(phase: int, name: str, peer: int, value: int) -> str:
    """Returns what a span is called."""
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
    """Returns what a viewer shows of a span beside its name and its times.

    Args:
        phase: Its phase.
        name: Its name, or `""`.
        fields: Its `value`, `peer`, `tag` and `flags`.
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
    """Returns the name and the fields of a span as `arguments` has shown it.

    Args:
        phase: Its phase.
        shown: What it is called.
        found: Its arguments.
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
