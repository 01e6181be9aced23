"""Functions that are called when a job starts, registered by frameworks.

The core itself knows no framework. In a program that uses only the core,
nothing is registered.
"""

from __future__ import annotations

from collections.abc import Callable

Step = Callable[[], None]

_before_start: list[Step] = []
_on_start: list[Step] = []


def before_start(step: Step) -> None:
    """Registers a function to call before this process meets other ranks.

    Args:
        step: Function that raises an error if this process must not start.
            Registering it again has no effect.
    """
    if step not in _before_start:
        _before_start.append(step)


def on_start(step: Step) -> None:
    """Registers a function to call whenever a job has started.

    Args:
        step: Function that may use the topology. Registering it again has no
            effect.
    """
    if step not in _on_start:
        _on_start.append(step)


def run_before_start() -> None:
    """Calls the functions registered by `before_start`, in their order."""
    for step in _before_start:
        step()


def run_on_start() -> None:
    """Calls the functions registered by `on_start`, in their order."""
    for step in _on_start:
        step()
