"""Functions that are called at the start and the end of a job, by frameworks.

The core itself knows no framework. In a program that uses only the core,
nothing is registered.
"""

from __future__ import annotations

from collections.abc import Callable

from keras_ring.core import topology

Step = Callable[[], None]

_before_start: list[Step] = []
_on_start: list[Step] = []
_before_end: list[Step] = []


def before_start(step: Step) -> None:
    """Registers a function to call before this process meets other ranks.

    Args:
        step: Function that raises an error if this process must not start.
            It is called now if there is a job already, which another
            framework of the program has started. Registering it again has no
            effect.
    """
    if step not in _before_start:
        _before_start.append(step)
        if topology.is_initialized():
            step()


def on_start(step: Step) -> None:
    """Registers a function to call whenever a job has started.

    Args:
        step: Function that may use the topology. It is called now if a job
            has started already. Registering it again has no effect.
    """
    if step not in _on_start:
        _on_start.append(step)
        if topology.is_initialized():
            step()


def before_end(step: Step) -> None:
    """Registers a function to call before this rank leaves the job in peace.

    It is not called if the program has failed.

    Args:
        step: Function that waits for collectives that are under way.
            Registering it again has no effect.
    """
    if step not in _before_end:
        _before_end.append(step)


def run_before_start() -> None:
    """Calls the functions registered by `before_start`, in their order."""
    for step in _before_start:
        step()


def run_on_start() -> None:
    """Calls the functions registered by `on_start`, in their order."""
    for step in _on_start:
        step()


def run_before_end() -> None:
    """Calls the functions registered by `before_end`, in their order."""
    for step in _before_end:
        step()
