"""The generations of an elastic job, and what its ranks tell each other.

While the ranks of the job are the same, they form a generation. A process that
joins a job which runs is alone at first, until the ranks let it in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from keras_ring import errors
from keras_ring.core import failures, native


@dataclasses.dataclass(frozen=True)
class Steps:
    """How the steps of elastic optimizers have ended on this rank.

    Attributes:
        committed: Integer, the number of steps that count.
        discarded: Integer, the number of those that no rank has applied.
        generation: Integer, the generation whose ranks have their shares in
            the last step that counts.
    """

    committed: int
    discarded: int
    generation: int


@dataclasses.dataclass(frozen=True)
class Told:
    """The texts that ranks told each other when their generation began.

    Attributes:
        generation: Integer.
        members: Tuple of the ranks that its members had at the start of the
            job, in the order of their present ranks.
        texts: Tuple of bytes, like `members`; empty if one told nothing.
    """

    generation: int
    members: tuple[int, ...]
    texts: tuple[bytes, ...]


def steps() -> Steps:
    """Returns how the steps of this rank have ended."""
    return Steps(*native.core().steps())


def is_waiting() -> bool:
    """Returns whether this process is to join others, and is not let in yet."""
    return bool(native.core().is_waiting())


def num_waiting() -> int:
    """Returns how many processes wait, as far as this rank has heard.

    Others may not have heard of it, so it decides nothing by itself.
    """
    return int(native.core().num_waiting())


def admit() -> None:
    """Lets in the processes that wait, or this one, if it does.

    All ranks must call it between the same two steps, with no operation
    pending. It blocks until they have, and there are enough of them. The job
    has another generation then, whose ranks have done nothing together yet.

    Raises:
        UnavailableError: If the job ends.
    """
    global _num_admissions
    with failures.translated():
        native.core().admit()
    _num_admissions += 1
    for forget in _on_admission:
        forget()


def num_admissions() -> int:
    """Returns how often this process was let in, or has let in others.

    What it has compared with others before, those that came in have not.
    """
    return _num_admissions


def on_admission(forget: Callable[[], None]) -> None:
    """Registers a function to call whenever others have come in.

    Args:
        forget: Function that forgets what ranks have done together, or how
            often. Registering it again has no effect.
    """
    if forget not in _on_admission:
        _on_admission.append(forget)


_num_admissions = 0
_on_admission: list[Callable[[], None]] = []


def tell(key: str, text: bytes, generation: int) -> bool:
    """Sets what this rank tells the others when the next generation begins.

    Args:
        key: String, what it is about.
        text: Bytes, in place of those before.
        generation: Integer, the generation that the caller knows of.

    Returns:
        Whether that generation was not over yet.
    """
    try:
        with failures.translated():
            native.core().tell(key, text, generation)
    except errors.AbortedError:
        return False
    return True


def told_after(generation: int, key: str) -> list[Told]:
    """Returns what was told about `key` after a generation, in order."""
    return [
        Told(number, tuple(members), tuple(texts))
        for number, members, texts in native.core().told(key, generation)
    ]
