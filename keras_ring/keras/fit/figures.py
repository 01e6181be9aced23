"""The measurements of a `fit` that ranks exchange."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from typing import NamedTuple

_SECOND = 1e9
# The unit of `ru_maxrss`, in bytes.
_MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024


class Figures(NamedTuple):
    """The measurements of a `fit` on one rank, all of them integers.

    Args:
        fit_ns: Integer, the duration in nanoseconds.
        steps: Integer, the number of steps.
        samples: Integer, the number of samples of this rank.
        steady_ns: Integer, the nanoseconds of all steps but those of the first
            call of the training function.
        steady_steps: Integer, the number of these steps.
        usual_ns: Integer, the nanoseconds since the second call began. The
            figures that follow, but `peak_bytes`, are of this time.
        data_wait_ns: Integer, the nanoseconds of waiting for the input
            pipeline.
        checkpoint_ns: Integer, the nanoseconds of writing or reading
            checkpoints.
        execute_ns: Integer, the nanoseconds of executing collectives.
        hidden_ns: Integer, the part of `execute_ns` that was spent in a step
            before its last tensor was submitted, behind computation.
        buckets: Integer, the number of buckets.
        last_buckets: Integer, the number of buckets that waited for this rank.
        late_ns: Integer, the nanoseconds that these buckets waited for it.
        peak_bytes: Integer, the largest memory of this process, in bytes.
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
        """Returns the figures at the beginning of a row of integers."""
        return cls(*row[: len(cls._fields)])

    @property
    def step_seconds(self) -> float:
        """Seconds per step, without the traced first ones if there are more."""
        if self.steady_steps:
            return self.steady_ns / self.steady_steps / _SECOND
        return self.fit_ns / max(self.steps, 1) / _SECOND

    @property
    def communication(self) -> float:
        """Fraction of the usual time in which collectives were executed."""
        return self.share(self.execute_ns)

    def share(self, nanoseconds: int) -> float:
        """Returns nanoseconds as a fraction of the usual time."""
        return nanoseconds / max(self.usual_ns, 1)


def peak_memory() -> int:
    """Returns the largest memory that this process has had, in bytes."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss * _MEMORY_UNIT
