"""What a rank has measured of a `fit`, as ranks tell it each other."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from typing import NamedTuple

_SECOND = 1e9
# The unit of the system's largest resident set.
_MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024


class Figures(NamedTuple):
    """What a rank has measured of a `fit`, all of them integers.

    Args:
        fit_ns: Nanoseconds, all of it.
        steps: Number of steps.
        samples: Number of samples of this rank.
        steady_ns: Nanoseconds of all steps but those of the first call.
        steady_steps: Number of these.
        usual_ns: Nanoseconds since the second call began; what follows is of
            these.
        data_wait_ns: Nanoseconds, waiting for the input pipeline.
        checkpoint_ns: Nanoseconds, writing or reading checkpoints.
        execute_ns: Nanoseconds, of collectives.
        hidden_ns: Nanoseconds of these, in steps, until the last tensor of the
            step was asked for: behind computation.
        buckets: Number of buckets.
        last_buckets: Number of those that waited for this rank.
        late_ns: Nanoseconds that they waited for it, altogether.
        peak_bytes: The most memory that this process has had.
    """

    fit_ns: int
    steps: int
    samples: int
    steady_ns: int
    steady_steps: int
    usual_ns: int
    data_wait_ns: int
    checkpoint_ns: int
    execute_ns: int
    hidden_ns: int
    buckets: int
    last_buckets: int
    late_ns: int
    peak_bytes: int

    @classmethod
    def of_row(cls, row: Sequence[int]) -> Figures:
        """Returns those that begin a row of integers."""
        return cls(*row[: len(cls._fields)])

    @property
    def step_seconds(self) -> float:
        """Seconds of a step, but for the first ones, which are traced."""
        if self.steady_steps:
            return self.steady_ns / self.steady_steps / _SECOND
        return self.fit_ns / max(self.steps, 1) / _SECOND

    @property
    def communication(self) -> float:
        """Of the time, how much a collective was executed."""
        return self.share(self.execute_ns)

    def share(self, nanoseconds: int) -> float:
        """Returns nanoseconds as a part of the usual time."""
        return nanoseconds / max(self.usual_ns, 1)


def peak_memory() -> int:
    """Returns the most bytes of memory that this process has had."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss * _MEMORY_UNIT
