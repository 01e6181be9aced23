"""The number of the epoch, for data whose order depends on it.

Data are not told which epoch of a training reads them; they count. A training
that goes on at a later epoch has to tell them from where.
"""

from __future__ import annotations

import weakref
from typing import Protocol


class Counter(Protocol):
    """Data that count the epochs that read them."""

    def set_next_epoch(self, epoch: int) -> None:
        """Says which epoch is the next one."""


_counters: weakref.WeakSet[Counter] = weakref.WeakSet()


def register(counter: Counter) -> None:
    """Has `resume_at` tell these data, as long as they are there."""
    _counters.add(counter)


def resume_at(epoch: int) -> None:
    """Says that the next epoch is number `epoch`."""
    for counter in list(_counters):
        counter.set_next_epoch(epoch)
