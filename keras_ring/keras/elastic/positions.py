"""The places of ranks in the data that they are dealt."""

from __future__ import annotations

from typing import Any

from keras_ring.keras.backends import backend


def pause() -> None:
    """Ends the loops that the program has left; the next ones go on there."""
    if (batches := _batches()) is not None:
        batches.pause()


def are_at_end() -> bool:
    """Returns whether nothing is left of an epoch that a loop is in."""
    batches = _batches()
    return batches is not None and batches.is_any_at_end()


def are_of_no_loop() -> bool:
    """Returns whether no loop that has begun goes on."""
    batches = _batches()
    return batches is not None and not batches.is_any_in_loop()


def are_left_for(num_waiting: int, data: Any) -> bool:
    """Returns whether a loop over data goes on for others who come in now.

    Args:
        num_waiting: Integer, the number of processes that are to come in.
        data: Data for which `are_of` is `True`.
    """
    batches = _batches()
    return batches is not None and bool(batches.are_left_for(num_waiting, data))


def are_of(data: Any) -> bool:
    """Returns whether ranks have places in some data."""
    batches = _batches()
    return batches is not None and bool(batches.are_dealt(data))


def share(*, has_come_in: bool) -> None:
    """Gives ranks that have come in the places of the others.

    All ranks must call this.

    Args:
        has_come_in: Boolean, whether this rank is one of them.
    """
    if (batches := _batches()) is not None:
        batches.share_positions(has_come_in=has_come_in)


def _batches() -> Any:
    if backend.name() != "tensorflow":
        return None
    from keras_ring.keras.data import dealt_batches

    return dealt_batches
