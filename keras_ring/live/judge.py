"""What is worth a sentence, and whether a rank is named in it.

One rule for all that explain a job: `fit`, `top`, `status`, `report`, `doctor`.
"""

from collections.abc import Sequence

# What costs less than this share of the time is not worth a change.
NOTABLE_SHARE = 0.05
# Some communication there always is. Links are named where ranks wait for it
# for this share of the time ...
MUCH_COMMUNICATION = 0.15
# ... or, where nobody knows what is hidden behind computation, where it goes on
# for this share.
MUCH_MAYBE_HIDDEN = 0.3
# What has run for so many seconds on all ranks does not get on. A collective
# may take long where tensors are large.
STANDSTILL_SECONDS = 5.0
# Of equal ranks each is last 1/N of the times. By this much more it is often.
_MORE_OFTEN = 0.15
# Of what all ranks together are late, how much one may be if they take turns.
_MAINLY = 0.6


def is_often_last(share: float, num_ranks: int) -> bool:
    """Returns whether a rank is last clearly more often than others are.

    Args:
        share: Of the times, how often the others have waited for it.
        num_ranks: How many ranks there are.
    """
    return num_ranks > 1 and share >= 1 / num_ranks + _MORE_OFTEN


def is_most(late: Sequence[float]) -> bool:
    """Returns whether one rank alone is most of what all are late.

    Args:
        late: What each rank is late, in any unit.
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
