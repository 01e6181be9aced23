"""The time limits of a launcher, from its options and variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from keras_ring.launch.usage import UsageError
from keras_ring.protocol import time_limits
from keras_ring.protocol.time_limits import LIMITS

# Default seconds between SIGTERM and SIGKILL if a host is lost. They are few,
# because it took some seconds to notice the loss.
_LOSS_GRACE = 1.0
# The time limit of a connection between two hosts, as a share of that of ssh,
# and its minimum in seconds.
_REACH_SHARE = 1 / 3
_LEAST_REACH = 3.0


def _default(name: str) -> float:
    return LIMITS[name].default


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Time limits in seconds; infinite if there is no limit.

    Args:
        grace_period: Float, the time between a forwarded signal and SIGKILL.
        failure_wait: Float, the time until SIGTERM to the other ranks after one
            has failed.
        failure_grace: Float, the time between that SIGTERM and SIGKILL.
        loss_grace: Float, the time between SIGTERM and SIGKILL after a host was
            lost.
        host_timeout: Float, the time without a sign of life after which a host
            is lost.
        connect_timeout: Float, the time for ssh to connect.
        elastic_timeout: Float, the time for which an elastic job may have fewer
            ranks than it must have.
        host_cooldown: Float, the time for which an elastic job leaves a host
            alone that has failed for the first time.
    """

    grace_period: float = _default(time_limits.GRACE_PERIOD)
    failure_wait: float = _default(time_limits.FAILURE_WAIT)
    failure_grace: float = _default(time_limits.FAILURE_GRACE)
    loss_grace: float = _LOSS_GRACE
    host_timeout: float = _default(time_limits.HOST_TIMEOUT)
    connect_timeout: float = _default(time_limits.CONNECT_TIMEOUT)
    elastic_timeout: float = _default(time_limits.ELASTIC_TIMEOUT)
    host_cooldown: float = _default(time_limits.HOST_COOLDOWN)

    @property
    def reach_timeout(self) -> float:
        """The seconds for one host to answer another one, at one address."""
        return max(_LEAST_REACH, _REACH_SHARE * self.connect_timeout)

    @classmethod
    def of(
        cls, options: Mapping[str, str], environment: Mapping[str, str]
    ) -> "Patience":
        """Returns the time limits of a job.

        Args:
            options: Dictionary of the options that the user gave, by the name
                of the variable.
            environment: The environment variables of the launcher.

        Raises:
            UsageError: If a limit is invalid.
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
