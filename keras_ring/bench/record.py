"""The measurements of one case, and their statistics."""

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
        num_tensors: Number of tensors.
        dtype: Name of the dtype of the tensors.
        op: Name of the `keras_ring.ReduceOp`.
        wire_bytes: Bytes of the tensors on the wire: fewer if they are
            compressed.
        link: The link between the hosts.
        times_us: For each iteration, the time of its slowest rank.
        cpu_us: CPU time of one iteration, user and system, of all ranks.
        memory_extra_bytes: Largest growth of the memory of a process since it
            joined the job, measured after this case and those before it, over
            all ranks. Shared pages count in equal parts to the processes that
            share them.
        control_bytes: Bytes that a rank sent, or received if that is more, to
            agree on one iteration; `None` if unknown.
        phases_ns: Mean time of the ranks in each phase of one iteration.
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
        """Returns a percentile of the times of the iterations."""
        return float(np.percentile(self.times_us, percent))

    @property
    def median_us(self) -> float:
        """Median time of the iterations."""
        return self.percentile_us(50)

    @property
    def algbw(self) -> float:
        """GB per second of a rank's tensors, by the median time."""
        return self.num_bytes / self.median_us / 1e3

    @property
    def busbw(self) -> float:
        """GB per second that a link must carry with any algorithm.

        nccl-tests define it as `algbw` * 2 (n - 1) / n.
        """
        return self.algbw * 2 * (self.size - 1) / self.size

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds of all ranks for each GB of a rank's tensors."""
        return self.cpu_us / self.num_bytes * 1e3

    @property
    def link_bound_us(self) -> float | None:
        """Shortest time that the link allows, or `None` if it is not known."""
        return self.link.bound_us(self.wire_bytes)

    @property
    def link_ratio(self) -> float | None:
        """Ratio of the median time to the shortest time of the link."""
        bound = self.link_bound_us
        return None if bound is None else self.median_us / bound

    def summary(self) -> dict[str, Any]:
        """Returns all values except single times, for JSON."""
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
            # A wrong result raises an error and makes no record.
            "check": "ok",
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the record as a dictionary for JSON and `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Record:
        """Returns the record that `to_dict` has encoded."""
        made = {
            "times_us": tuple(fields["times_us"]),
            "link": HostLink(**fields["link"]),
        }
        return cls(**{**fields, **made})


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
