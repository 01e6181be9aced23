"""What lies between the hosts of a job, and what it makes impossible."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostLink:
    """How each host is connected to the others.

    Args:
        hosts: How many the job has.
        gb_s: GB per second that plain TCP carries from each host while it
            carries as much to it; `None` if that is not known.
        problem: Why it is not known, if it was tried.
        cpu_s_per_gb: CPU seconds that this costs all hosts together, per GB
            that each sends and receives at the same time.
    """

    hosts: int = 1
    gb_s: float | None = None
    problem: str = ""
    cpu_s_per_gb: float | None = None

    def bound_us(self, num_bytes: int) -> float | None:
        """Returns the least time of an allreduce; `None` if it is not known.

        Whatever the algorithm, a host sends all that it has but its share of
        the sum, and receives the sum but for that share: 2 (h - 1) / h of the
        bytes one way, and as many the other way.

        Args:
            num_bytes: What a rank's tensors take on their way.
        """
        if self.gb_s is None:
            return None
        return num_bytes * self._crossings / self.gb_s / 1e3

    @property
    def bound_cpu_s_per_gb(self) -> float | None:
        """What plain TCP costs for the bytes that cross links, whatever else.

        CPU seconds of all hosts per GB that is reduced; `None` if it is not
        known.
        """
        if self.cpu_s_per_gb is None:
            return None
        return self.cpu_s_per_gb * self._crossings

    @property
    def _crossings(self) -> float:
        return 2 * (self.hosts - 1) / self.hosts
