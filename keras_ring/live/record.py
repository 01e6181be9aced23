"""A job as an object of JSON, for programs that look."""

from dataclasses import asdict
from typing import Any

from keras_ring.live.view import JobView
from keras_ring.live.waiting import cause_of, explain


def record(job: JobView) -> dict[str, Any]:
    """Returns what is seen of a job; docs/watching.md lists the keys."""
    slowest, cause = cause_of(job)
    return {
        **asdict(job),
        "slowest": None if slowest is None else slowest.rank,
        "cause": cause,
        "messages": explain(job),
    }
