"""What can be measured: keras_ring, or something that does the same."""

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
        run: Reduces the case's tensors once and returns the results.
        expected: One period of each result (see `contents.check`).
        reset: Called before each run, outside the measured time, by what
            reduces in place.
    """

    run: Callable[[], Sequence[npt.ArrayLike]]
    expected: list[npt.NDArray[np.float64]]
    reset: Callable[[], None] = _nothing


class System(Protocol):
    """One rank's end of a system."""

    @property
    def name(self) -> str:
        """What results are labelled with."""

    @property
    def version(self) -> str:
        """Of what is measured."""

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
        """Returns all ranks' vectors of one length, one row per rank."""

    def prepare(self, case: Case) -> Prepared:
        """Makes a case's tensors."""

    def counters(self) -> Mapping[str, int]:
        """Numbers that grow while it works; empty if it has none."""
