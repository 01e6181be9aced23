"""Decides which steps count in whose midst a job has lost a rank.

The ranks that are left have come to different points: one has heard that all
have asked for the commit, another one not; one has the sum of a bucket, another
one has lost it with the rank that did not send its part. They must all do the
same. Of each commit group, they are in one step or in two that follow each
other:

- A rank that waits for the commit of a step, in which another one has gone on,
  commits it: all have asked for it.
- If nobody has begun the step that follows, nothing of it is lost. It goes on
  among those that are left.
- If everybody has all of its results and waits for the commit, it is committed:
  the share of the lost rank is in it, and all have the same bits.
- Otherwise it is discarded.
"""

from collections.abc import Sequence

from keras_ring.launch.elastic.messages import (
    MemberReport,
    Outcome,
    Settlement,
    StepReport,
)


class SettlementError(ValueError):
    """The reports of ranks contradict each other."""


def settle(reports: Sequence[MemberReport]) -> tuple[Settlement, ...]:
    """Returns what becomes of the steps that ranks have reported.

    Args:
        reports: `MemberReport`s of all ranks that go on.

    Raises:
        SettlementError: If no loss of ranks can have led to these reports.
    """
    groups = sorted({group for report in reports for group in report.steps})
    none = StepReport()
    return tuple(
        _settle(group, [report.steps.get(group, none) for report in reports])
        for group in groups
    )


def _settle(group: str, rows: Sequence[StepReport]) -> Settlement:
    step = max(row.settled for row in rows)
    here = [row for row in rows if row.settled == step]
    behind = [row for row in rows if row.settled < step]
    # All must have asked for a commit before one can have it.
    if any(row.settled != step - 1 or not row.whole for row in behind):
        raise SettlementError(
            f"commit group {group}: a rank is in step {step}, and another one"
            f" neither is nor waits for the commit of step {step - 1}:"
            f" {behind}"
        )
    if not any(row.begun for row in here):
        outcome = Outcome.OPEN
    elif len(here) == len(rows) and all(row.whole for row in rows):
        outcome = Outcome.COMMITTED
    else:
        outcome = Outcome.DISCARDED
    return Settlement(group, step, outcome)
