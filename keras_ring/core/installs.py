"""What frameworks do when a job starts: rooms above the core register it here.

The core knows none of them. A program that uses the core alone has none.
"""

from __future__ import annotations

from collections.abc import Callable

Step = Callable[[], None]

_before_start: list[Step] = []
_on_start: list[Step] = []


def before_start(step: Step) -> None:
    """Has a function called before this process meets the other ranks.

    Args:
        step: Raises an error if this process must not start. Registering it
            again changes nothing.
    """
    if step not in _before_start:
        _before_start.append(step)


def on_start(step: Step) -> None:
    """Has a function called whenever a job has started.

    Args:
        step: May ask for the topology. Registering it again changes nothing.
    """
    if step not in _on_start:
        _on_start.append(step)


def run_before_start() -> None:
    """Calls what was registered by `before_start`, in that order."""
    for step in _before_start:
        step()


def run_on_start() -> None:
    """Calls what was registered by `on_start`, in that order."""
    for step in _on_start:
        step()
