"""The link between the hosts of a job, and the bounds that it sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostLink:
    """The connection of each host to the others.

    Args:
        hosts: Integer, the number of hosts of the job.
        gb_s: GB per second that plain TCP carries from each host while it
            carries as much to it; `None` if it is not known.
        problem: String, the reason if a measurement has failed.
        cpu_s_per_gb: CPU seconds of all hosts together, per GB that each of
            them sends and receives at the same time.
    """

    hosts: int = 1
    gb_s: float | None = None
    problem: str = ""
    cpu_s_per_gb: float | None = None

    def bound_us(self, num_bytes: int) -> float | None:
        """Returns the shortest time of an allreduce, or `None` if not known.

        With any algorithm, each of h hosts sends its values except for its
        share, and later receives the sum except for that share. So it sends
        2 (h - 1) / h of the bytes, and receives as many.

        Args:
            num_bytes: Integer, the size of a rank's tensors on the wire.
        """
        if self.gb_s is None:
            return None
        return num_bytes * self._crossings / self.gb_s / 1e3

    @property
    def bound_cpu_s_per_gb(self) -> float | None:
        """CPU time of plain TCP for the bytes that have to cross links.

        In CPU seconds of all hosts per GB that is reduced; `None` if it is not
        known.
        """
        if self.cpu_s_per_gb is None:
            return None
        return self.cpu_s_per_gb * self._crossings

    @property
    def _crossings(self) -> float:
        return 2 * (self.hosts - 1) / self.hosts
