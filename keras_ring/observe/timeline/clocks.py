"""Converts times of a rank's clock to rank 0's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClockReading:
    """The offset between rank 0's clock and a rank's, at one time.

    Args:
        at_ns: Time of the reading by the rank's own clock.
        offset_ns: Nanoseconds to add to get the time of rank 0's clock.
        error_ns: Largest error of the offset, in ns.
    """

    at_ns: int
    offset_ns: int
    error_ns: int


class Alignment:
    """The conversion from a rank's clock to rank 0's.

    Between two readings the offset is interpolated linearly, because clocks
    run at different speeds. Before the first and after the last reading it is
    constant.

    Args:
        readings: Readings in any order. If there are none, both clocks are
            taken to be the same.
        error_ns: Error of the offset without readings, in ns; `None` if it is
            not known.
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
        # Differences from one reading are small enough to be exact floats.
        self._at = readings[0].at_ns
        self._offset = readings[0].offset_ns
        self._ats = np.array([each.at_ns - self._at for each in readings])
        self._offsets = np.array(
            [each.offset_ns - self._offset for each in readings]
        )

    def apply(self, times: Times) -> Times:
        """Returns times converted to rank 0's clock."""
        drift = np.interp(times - self._at, self._ats, self._offsets)
        moved: Times = times + self._offset + np.rint(drift).astype(np.int64)
        return moved
