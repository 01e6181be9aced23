"""How patient a launcher is, by its options and variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from keras_ring._launch_protocol import time_limits
from keras_ring._launch_protocol.time_limits import LIMITS
from keras_ring.launcher.usage import UsageError

# Seconds between SIGTERM and SIGKILL where a host is lost, unless the user
# says: that it is took some seconds to be known.
_LOSS_GRACE = 1.0
# Of the seconds that ssh gets to connect to a host, those that a connection
# between two hosts gets; and how many these are at least.
_REACH_SHARE = 1 / 3
_LEAST_REACH = 3.0


def _default(name: str) -> float:
    return LIMITS[name].default


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Limits of time, in seconds; infinite where there is none.

    Args:
        grace_period: Between a forwarded signal and SIGKILL.
        failure_wait: That the other ranks get after one has failed.
        failure_grace: Between SIGTERM and SIGKILL after that.
        loss_grace: The same where a host is lost.
        host_timeout: Without a sign of life of a host.
        connect_timeout: For ssh to connect.
    """

    grace_period: float = _default(time_limits.GRACE_PERIOD)
    failure_wait: float = _default(time_limits.FAILURE_WAIT)
    failure_grace: float = _default(time_limits.FAILURE_GRACE)
    loss_grace: float = _LOSS_GRACE
    host_timeout: float = _default(time_limits.HOST_TIMEOUT)
    connect_timeout: float = _default(time_limits.CONNECT_TIMEOUT)

    @property
    def reach_timeout(self) -> float:
        """Seconds for one host to answer another one, at one address."""
        return max(_LEAST_REACH, _REACH_SHARE * self.connect_timeout)

    @classmethod
    def of(
        cls, options: Mapping[str, str], environment: Mapping[str, str]
    ) -> "Patience":
        """Returns that of a job.

        Args:
            options: What the user has typed, by the name of the variable.
            environment: Of the launcher.

        Raises:
            UsageError: If a limit makes no sense.
        """
        given: dict[str, float] = {}
        for name, limit in LIMITS.items():
            text = options.get(name, environment.get(name))
            if not text:
                continue
            seconds = limit.parsed(text)
            if seconds is None:
                what = limit.option if name in options else name
                raise UsageError(f"{what} {text!r}: expected {limit.expected}")
            given[name.removeprefix("KERAS_RING_").lower()] = seconds
        if "failure_grace" in given:
            given["loss_grace"] = given["failure_grace"]
        return cls(**given)
