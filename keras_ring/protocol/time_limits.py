"""The time limits of the launcher, with their options and variables."""

import math
from collections.abc import Mapping
from typing import NamedTuple

NEVER = "never"
_MAX_SECONDS = 1e8


class TimeLimit(NamedTuple):
    """One of the limits."""

    option: str
    """The option of `keras-ring run`."""
    default: float
    """The default in seconds."""
    least: float
    """The lowest value in seconds."""
    may_be_never: bool
    """Whether `never` is a valid value."""
    meaning: str
    """The description for the help and the page of variables."""

    @property
    def expected(self) -> str:
        """The values that it may have, for an error message."""
        never = f", or {NEVER}" if self.may_be_never else ""
        return f"seconds, at least {self.least:g}{never}"

    def parsed(self, text: str) -> float | None:
        """Returns the seconds of a text, or `None` if it is invalid."""
        if text == NEVER:
            return math.inf if self.may_be_never else None
        # `float` also accepts "1_000" and trailing spaces.
        if "_" in text or text.strip() != text:
            return None
        try:
            seconds = float(text)
        except ValueError:
            return None
        return seconds if self.least <= seconds <= _MAX_SECONDS else None


GRACE_PERIOD = "KERAS_RING_GRACE_PERIOD"
FAILURE_WAIT = "KERAS_RING_FAILURE_WAIT"
FAILURE_GRACE = "KERAS_RING_FAILURE_GRACE"
HOST_TIMEOUT = "KERAS_RING_HOST_TIMEOUT"
CONNECT_TIMEOUT = "KERAS_RING_CONNECT_TIMEOUT"
ELASTIC_TIMEOUT = "KERAS_RING_ELASTIC_TIMEOUT"
HOST_COOLDOWN = "KERAS_RING_HOST_COOLDOWN"

LIMITS: Mapping[str, TimeLimit] = {
    GRACE_PERIOD: TimeLimit(
        "--grace-period",
        10.0,
        0.0,
        True,
        "seconds that ranks get to end, for example to save, after SIGTERM,"
        " SIGINT or SIGHUP to this command; then SIGKILL",
    ),
    FAILURE_WAIT: TimeLimit(
        "--failure-wait",
        2.0,
        0.0,
        True,
        "seconds in which ranks may end by themselves after another one has"
        " failed; then SIGTERM",
    ),
    FAILURE_GRACE: TimeLimit(
        "--failure-grace",
        2.0,
        0.0,
        True,
        "seconds that they get to end after that SIGTERM; then SIGKILL",
    ),
    HOST_TIMEOUT: TimeLimit(
        "--host-timeout",
        3.5,
        2.0,
        False,
        "seconds without a sign of life of another host, or of this command"
        " there, after which it is lost",
    ),
    CONNECT_TIMEOUT: TimeLimit(
        "--connect-timeout",
        10.0,
        1.0,
        False,
        "seconds for ssh to connect to a host, which then has as many, and"
        " at least 30, to answer; hosts have a third of them, and at least 3,"
        " to connect to each other",
    ),
    HOST_COOLDOWN: TimeLimit(
        "--host-cooldown",
        10.0,
        0.0,
        True,
        "seconds for which a job of --max-np leaves a host alone that was lost,"
        " or on which a process has failed that was to join; twice as many each"
        " time, until one comes in",
    ),
    ELASTIC_TIMEOUT: TimeLimit(
        "--elastic-timeout",
        600.0,
        0.0,
        True,
        "seconds for which a job of --max-np may have fewer ranks than"
        " --min-np",
    ),
}


def seconds_text(seconds: float) -> str:
    """Returns a limit as a user types it, such as `10` or `2.5`."""
    return NEVER if math.isinf(seconds) else f"{seconds:g}"
