"""A sequential test of whether a setting is faster than the default."""

from __future__ import annotations

import math
import statistics

# Number of pairs -> what Student's t of as many must exceed. Quantiles of t for
# 1 - 0.0158 / 2 and one degree of freedom less than there are pairs.
_LIMITS = {4: 4.953, 6: 3.584, 8: 3.166, 10: 2.966, 12: 2.850}
MOST_PAIRS = max(_LIMITS)


class Comparison:
    """Compares a setting with the default, pair by pair.

    The rule: after 4, 6, 8, 10 and 12 pairs of samples, the setting is better
    if Student's t of the logarithms of the pairs' ratios is above a limit; it
    is not if their mean is not above 0, or after 12 pairs. Pairs are measured
    in turns (default, setting, setting, default), so that a drift of the
    machine does not favour either.

    A setting that is as fast as the default is taken for faster in one of 40
    cases (2.5 %, all five looks together; for one that is slower, in fewer),
    provided that the noise is normal. The limits are those of

        S. J. Pocock, "Group sequential methods in the design and analysis of
        clinical trials", Biometrika 64, 1977: five looks, 5 % on both sides,
        so a nominal 1.58 % at each

    with Student's distribution in place of the normal one, as the variance is
    not known:

        Student, "The probable error of a mean", Biometrika 6, 1908
    """

    def __init__(self) -> None:
        self._ratios: list[float] = []  # logarithms

    def add(self, default: float, setting: float) -> None:
        """Takes a pair of samples, as speeds."""
        self._ratios.append(math.log(setting / default))

    @property
    def gain(self) -> float:
        """Relative increase in speed over the default: 0.05 is 5 %."""
        return math.expm1(statistics.fmean(self._ratios))

    def is_better(self) -> bool | None:
        """Returns whether the setting is better, or `None` if undecided."""
        count = len(self._ratios)
        if count not in _LIMITS:
            return None
        mean = statistics.fmean(self._ratios)
        if mean <= 0:
            return False
        error = statistics.stdev(self._ratios) / math.sqrt(count)
        if mean > _LIMITS[count] * error:
            return True
        return False if count == MOST_PAIRS else None
