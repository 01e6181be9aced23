"""Thresholds for what is reported about a job, and which ranks are named.

All programs that explain a job share them: `fit`, `top`, `status`, `report`
and `doctor`.
"""

from collections.abc import Sequence

# A cost below this share of the time is not reported.
NOTABLE_SHARE = 0.05
# There is always some communication. Links are reported as a cause if ranks
# wait for communication for this share of the time ...
MUCH_COMMUNICATION = 0.15
# ... or, if the part that computation hides is not known, if communication
# takes this share.
MUCH_MAYBE_HIDDEN = 0.3
# A collective that has run for so many seconds on all ranks makes no progress.
# It may take long if tensors are large.
STANDSTILL_SECONDS = 5.0
# Each of N equal ranks is last in 1/N of the cases. A rank is often last if
# its share exceeds that by this much.
_MORE_OFTEN = 0.15
# The largest share that one rank may have of the lateness of all ranks if they
# are late in turns.
_MAINLY = 0.6


def is_often_last(share: float, num_ranks: int) -> bool:
    """Returns whether a rank is last clearly more often than others.

    Args:
        share: Float, the share of cases in which the others waited for it.
        num_ranks: Integer, the number of ranks.
    """
    return num_ranks > 1 and share >= 1 / num_ranks + _MORE_OFTEN


def is_most(late: Sequence[float]) -> bool:
    """Returns whether one rank causes most of the lateness of all ranks.

    Args:
        late: Floats, the lateness of each rank, in any unit.
    """
    return bool(late) and max(late) >= _MAINLY * sum(late) > 0


def hidden_share(hidden: float, communication: float) -> float:
    """Returns how much of communication is hidden behind computation.

    That is what runs on a rank within a step, until the last tensor of the
    step is submitted: the program still computes then. It waits for what runs
    after that, and for what runs between two steps, as at the end of an epoch.

    Args:
        hidden: Time of that kind, of all ranks together.
        communication: All time in which collectives run, likewise.
    """
    return min(hidden / communication, 1.0) if communication else 0.0


def percent(share: float) -> str:
    """Returns a share as people read it, such as `"14%"`."""
    value = 100 * share
    return f"{value:.1f}%" if 0 < value < 1 else f"{value:.0f}%"
