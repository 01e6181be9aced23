"""Brings times of a rank's clock to rank 0's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClockReading:
    """How far rank 0's clock was ahead of a rank's, at one time.

    Args:
        at_ns: When, by the rank's own clock.
        offset_ns: What to add to that for rank 0's.
        error_ns: By how much that may be wrong.
    """

    at_ns: int
    offset_ns: int
    error_ns: int


class Alignment:
    """The way from a rank's clock to rank 0's.

    Between two readings the offset changes evenly, for clocks run at different
    speeds; before the first and after the last it stays.

    Args:
        readings: In any order. None of them: the clocks are the same.
        error_ns: How wrong that is then; `None` if nobody knows.
    """

    def __init__(
        self,
        readings: Sequence[ClockReading],
        error_ns: int | None = 0,
    ) -> None:
        readings = sorted(readings, key=lambda reading: reading.at_ns)
        if not readings:
            readings = [ClockReading(0, 0, 0)]
        else:
            error_ns = max(reading.error_ns for reading in readings)
        self.error_ns = error_ns
        """The largest error of all readings."""
        self.offset_ns = readings[-1].offset_ns
        """The last offset."""
        # Differences to one reading are small enough to be exact as floats.
        self._at = readings[0].at_ns
        self._offset = readings[0].offset_ns
        self._ats = np.array([each.at_ns - self._at for each in readings])
        self._offsets = np.array(
            [each.offset_ns - self._offset for each in readings]
        )

    def apply(self, times: Times) -> Times:
        """Returns times by rank 0's clock."""
        drift = np.interp(times - self._at, self._ats, self._offsets)
        moved: Times = times + self._offset + np.rint(drift).astype(np.int64)
        return moved
