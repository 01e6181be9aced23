"""The view of a job as a JSON object, for other programs."""

from dataclasses import asdict
from typing import Any

from keras_ring.observe.view import JobView
from keras_ring.observe.waiting import cause_of, explain


def record(job: JobView) -> dict[str, Any]:
    """Returns the view of a job by the keys of docs/watching.md."""
    slowest, cause = cause_of(job)
    return {
        **asdict(job),
        "slowest": None if slowest is None else slowest.rank,
        "cause": cause,
        "messages": explain(job),
    }
