"""What was measured of one case, and its statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from keras_ring.bench.host_link import HostLink


@dataclass(frozen=True, kw_only=True)
class Record:
    """The result of one case on one system.

    Args:
        system: Name of the system.
        version: Its version.
        size: Number of ranks.
        case: Name of the case.
        num_bytes: Bytes of one rank's tensors.
        num_tensors: How many they are.
        dtype: Of the tensors.
        op: How they were reduced.
        wire_bytes: What they take on their way: less if they are compressed.
        link: What lay between the hosts.
        times_us: For each iteration, the time of its slowest rank.
        cpu_us: CPU time of one iteration, user and system, of all ranks.
        memory_extra_bytes: By how much the memory of a process has grown
            since it joined the job, after the case, of this one and those
            before it, where that is most; of the rank where it is most.
            Shared pages count in equal parts to those that share them.
        control_bytes: What a rank sent, or received if that is more, to agree
            on one iteration; `None` if unknown.
        phases_ns: Where the time of one iteration went, the mean of the ranks.
    """

    system: str
    version: str
    size: int
    case: str
    num_bytes: int
    num_tensors: int
    dtype: str
    op: str
    wire_bytes: int
    link: HostLink = field(default_factory=HostLink)
    times_us: tuple[float, ...]
    cpu_us: float
    memory_extra_bytes: int
    control_bytes: float | None = None
    phases_ns: Mapping[str, float] = field(default_factory=dict)

    def percentile_us(self, percent: float) -> float:
        """Returns the time that so many percent of the iterations kept."""
        return float(np.percentile(self.times_us, percent))

    @property
    def median_us(self) -> float:
        """The time of the iteration in the middle."""
        return self.percentile_us(50)

    @property
    def algbw(self) -> float:
        """GB per second of a rank's tensors, by the median."""
        return self.num_bytes / self.median_us / 1e3

    @property
    def busbw(self) -> float:
        """GB per second that a link must carry whatever the algorithm.

        As nccl-tests define it: `algbw` * 2 (n - 1) / n.
        """
        return self.algbw * 2 * (self.size - 1) / self.size

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds of all ranks for each GB of a rank's tensors."""
        return self.cpu_us / self.num_bytes * 1e3

    @property
    def link_bound_us(self) -> float | None:
        """The least time that the link allows; `None` if it is not known."""
        return self.link.bound_us(self.wire_bytes)

    @property
    def link_ratio(self) -> float | None:
        """How many times that least time the median is."""
        bound = self.link_bound_us
        return None if bound is None else self.median_us / bound

    def summary(self) -> dict[str, Any]:
        """Returns all but the single times, for JSON."""
        fields = asdict(self)
        for name in ("times_us", "link"):
            del fields[name]
        return {
            **fields,
            "hosts": self.link.hosts,
            "link_gb_s": _rounded(self.link.gb_s, 4),
            "link_bound_us": _rounded(self.link_bound_us, 2),
            "link_ratio": _rounded(self.link_ratio, 3),
            "cpu_s_per_gb": round(self.cpu_s_per_gb, 4),
            "iterations": len(self.times_us),
            "p10_us": round(self.percentile_us(10), 2),
            "median_us": round(self.median_us, 2),
            "p90_us": round(self.percentile_us(90), 2),
            "algbw_gb_s": round(self.algbw, 4),
            "busbw_gb_s": round(self.busbw, 4),
            # A wrong result is an error, not a row.
            "check": "ok",
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns what `from_dict` takes, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Record:
        """Returns the record that `to_dict` was called on."""
        made = {
            "times_us": tuple(fields["times_us"]),
            "link": HostLink(**fields["link"]),
        }
        return cls(**{**fields, **made})


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
