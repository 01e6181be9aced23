"""keras_ring as a system to measure, as far as it needs no framework."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

import keras_ring as kr
from keras_ring import core
from keras_ring.bench import measured_host_link
from keras_ring.bench.host_link import HostLink


class JobSystem:
    """keras_ring in the job of this process, which has begun.

    A class for a framework begins the job, and has `prepare`.
    """

    name = "keras_ring"
    version = kr.__version__

    def __init__(self) -> None:
        self.rank = core.rank()
        self.size = core.size()

    def link(self) -> HostLink:
        """Measures the link between the hosts of the job."""
        return measured_host_link.measure()

    def barrier(self) -> None:
        """Waits for all ranks."""
        core.barrier(name="bench/barrier")

    def gather(
        self, values: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Returns the vectors of all ranks, one row per rank."""
        return core.allgather(values[np.newaxis], name="bench/gather")

    def counters(self) -> Mapping[str, int]:
        """Returns the counters of the runtime."""
        return core.metrics()


class Floor:
    """A system that reduces nothing, as far as it needs no framework.

    It is the cost of the framework and of measuring. The ranks still start and
    combine their times through keras_ring.
    """

    name = "none"

    def link(self) -> HostLink:
        """Returns a link of one host: a case sends nothing to other hosts."""
        return HostLink()

    def counters(self) -> Mapping[str, int]:
        """Returns no counters: there are no collectives to count."""
        return {}
