"""Visits every state that a model can reach, and says what is wrong with one.

Breadth first, so the trace to a fault is a shortest one.
"""

import array
import dataclasses
import time
from collections.abc import Hashable, Iterable
from typing import Protocol


class Violation(Exception):
    """What must never happen has happened in a step."""


class Model(Protocol):
    """What can be explored. A state is any immutable value."""

    def initial(self) -> Hashable: ...

    def actions(self, state) -> Iterable[tuple[str, Hashable]]:
        """Each step that may be next: what it is called, where it leads."""

    def is_final(self, state) -> bool:
        """Whether everything may rest here."""

    def fault(self, state) -> str | None:
        """What is wrong with the state itself."""


@dataclasses.dataclass(frozen=True)
class Report:
    states: int
    steps: int
    seconds: float
    fault: str | None = None
    trace: tuple[str, ...] = ()

    def text(self):
        """The fault and the way to it, for people."""
        lines = [f"{i:3}. {step}" for i, step in enumerate(self.trace, 1)]
        return "\n".join([*lines, f"  => {self.fault}"])


def explore(model: Model, limit: int = 2_000_000) -> Report:
    """Looks for a broken rule, a deadlock, and a state without a way out.

    The last is a state from which no final one can be reached: with steps that
    are taken fairly, all else ends.
    """
    began = time.process_time()
    first = model.initial()
    number = {first: 0}
    states = [first]
    came_from = array.array("i", [-1])
    labels = [""]
    edges_from, edges_to = array.array("i"), array.array("i")
    final = bytearray()

    def report(fault=None, at=0, last=()):
        trace = list(last)
        while fault and at > 0:
            trace.insert(0, labels[at])
            at = came_from[at]
        return Report(
            len(states),
            len(edges_to),
            time.process_time() - began,
            fault,
            tuple(trace),
        )

    at = 0
    while at < len(states):
        state = states[at]
        fault = model.fault(state)
        if fault:
            return report(fault, at)
        final.append(model.is_final(state))
        moves = 0
        steps = iter(model.actions(state))
        while True:
            try:
                label, after = next(steps)
            except StopIteration:
                break
            except Violation as violation:
                what, step = violation.args
                return report(what, at, [step])
            moves += 1
            to = number.setdefault(after, len(states))
            if to == len(states):
                states.append(after)
                came_from.append(at)
                labels.append(label)
            edges_from.append(at)
            edges_to.append(to)
        if moves == 0 and not final[at]:
            return report("deadlock", at)
        if len(states) > limit:
            return report(f"more than {limit} states", at)
        at += 1
    lost = _without_a_way_out(final, edges_from, edges_to)
    if lost is not None:
        return report("no end can be reached any more", lost)
    return report()


def _without_a_way_out(final, edges_from, edges_to):
    """The first state that reaches no final one, or None."""
    # Edges grouped by where they lead to: offsets, as in a sparse matrix.
    count = len(final)
    begin = array.array("i", bytes(4 * (count + 1)))
    for to in edges_to:
        begin[to + 1] += 1
    for i in range(count):
        begin[i + 1] += begin[i]
    next_index = array.array("i", begin)
    sources = array.array("i", bytes(4 * len(edges_to)))
    for source, to in zip(edges_from, edges_to, strict=True):
        sources[next_index[to]] = source
        next_index[to] += 1
    reaches = bytearray(final)
    work = [i for i in range(count) if final[i]]
    while work:
        to = work.pop()
        for source in sources[begin[to] : begin[to + 1]]:
            if not reaches[source]:
                reaches[source] = 1
                work.append(source)
    lost = reaches.find(0)
    return None if lost < 0 else lost
