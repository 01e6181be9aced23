"""The interface of systems to measure: keras_ring, or another library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from keras_ring.bench.case import Case


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Prepared:
    """A case, ready to run on one rank.

    Args:
        run: Function that reduces the case's tensors once and returns the
            results.
        expected: One period of each result (see `contents.check`).
        reset: Function to call before each run, outside the measured time, for
            systems that reduce in place.
    """

    run: Callable[[], Sequence[npt.ArrayLike]]
    expected: list[npt.NDArray[np.float64]]
    reset: Callable[[], None] = _nothing


class System(Protocol):
    """A system to measure, as one of its ranks sees it."""

    @property
    def name(self) -> str:
        """Name of the system in results."""

    @property
    def version(self) -> str:
        """Version of the system."""

    @property
    def rank(self) -> int:
        """Index of this process in the job."""

    @property
    def size(self) -> int:
        """Number of processes in the job."""

    def barrier(self) -> None:
        """Waits for all ranks."""

    def gather(
        self, values: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Returns the vectors of all ranks, one row per rank."""

    def prepare(self, case: Case) -> Prepared:
        """Makes the tensors of a case."""

    def counters(self) -> Mapping[str, int]:
        """Returns counters of the system; empty if it has none."""
