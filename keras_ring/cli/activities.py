"""What ranks did when they wrote their flight records, by their status pages.

A rank that is killed leaves its page; one that still runs says since when it
does what it does.
"""

from collections.abc import Mapping, Sequence

from keras_ring.cli.flight_log import FlightLog
from keras_ring.errors import ConfigurationError
from keras_ring.live.directory import status_directory
from keras_ring.live.jobs import find_jobs
from keras_ring.live.pages import Page
from keras_ring.live.words import ACTIVITIES


def activities(
    logs: Sequence[FlightLog], environment: Mapping[str, str]
) -> dict[int, str]:
    """Returns the activities that are known, by rank.

    Args:
        logs: Of the ranks, some of which may have run elsewhere.
        environment: Says where the pages are.
    """
    try:
        jobs = find_jobs(status_directory(environment))
    except ConfigurationError:
        # Nobody has asked for them.
        return {}
    pages = {_who(page): page for job in jobs for page in job.pages}
    return {
        log.rank: ACTIVITIES[page.counters["activity"]]
        for log in logs
        if (page := pages.get(_who(log))) is not None and _tells_of(page, log)
    }


def _who(of: Page | FlightLog) -> tuple[str, int, int]:
    return of.host, of.pid, of.rank


def _tells_of(page: Page, log: FlightLog) -> bool:
    """Whether what the rank does now is what it did then."""
    number = page.counters.get("activity", len(ACTIVITIES))
    since = page.unix_ns(page.counters.get("activity_ns", 0))
    return number < len(ACTIVITIES) and since <= log.written * 1e9
