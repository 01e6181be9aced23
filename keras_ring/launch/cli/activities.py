"""Activities of ranks at the time of their flight records.

They come from the ranks' status pages. A killed rank leaves its page, and the
page of a running rank tells since when it has its activity.
"""

from collections.abc import Mapping, Sequence

from keras_ring.errors import ConfigurationError
from keras_ring.launch.cli.flight_log import FlightLog
from keras_ring.observe.directory import status_directory
from keras_ring.observe.jobs import find_jobs
from keras_ring.observe.pages import Page
from keras_ring.observe.words import ACTIVITIES


def activities(
    logs: Sequence[FlightLog], environment: Mapping[str, str]
) -> dict[int, str]:
    """Returns the known activities, by rank.

    Args:
        logs: Sequence of `FlightLog`s of ranks, some of which may have run on
            other hosts.
        environment: Environment variables, which tell the directory of the
            pages.
    """
    try:
        jobs = find_jobs(status_directory(environment))
    except ConfigurationError:
        # The user has not asked for activities, so this is no error.
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
    """Returns whether the activity began before the flight log was written."""
    number = page.counters.get("activity", len(ACTIVITIES))
    since = page.unix_ns(page.counters.get("activity_ns", 0))
    return number < len(ACTIVITIES) and since <= log.written * 1e9
