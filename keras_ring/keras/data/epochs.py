"""Sets the epoch number of data whose order depends on it.

Keras does not tell the data which epoch reads them, so they count epochs. A
training that resumes at a later epoch has to set the number.
"""

from __future__ import annotations

import weakref
from typing import Protocol


class Counter(Protocol):
    """Data that count the epochs that read them."""

    def set_next_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch that reads the data next."""


_counters: weakref.WeakSet[Counter] = weakref.WeakSet()


def register(counter: Counter) -> None:
    """Adds data that `resume_at` notifies while they exist."""
    _counters.add(counter)


def resume_at(epoch: int) -> None:
    """Sets the number of the next epoch in all registered data."""
    for counter in list(_counters):
        counter.set_next_epoch(epoch)
