"""Compares the batches that ranks have read, and divide between them.

All ranks must read the same batches. What makes them differ is a seed of the
program's own that is another one on each rank, or the clock. A digest of some
numbers of each row is kept, and compared ever more rarely (`comparisons`), and
at the end of each epoch.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

from keras_ring._typing import Structure
from keras_ring.core import arrays
from keras_ring.core.process_sets import global_process_set
from keras_ring.errors import AutoError
from keras_ring.keras.agreement.rank_names import rank_list
from keras_ring.keras.backends import backend
from keras_ring.keras.lanes import events, hooks
from keras_ring.keras.lanes.rings import Ring
from keras_ring.unchanged import comparisons, data_passes, script

_NUMBER_BYTES = 8
# Numbers of a row that are compared, at least.
_NUMBERS = 16


class Digests:
    """The digests of the batches that one `fit` has read on this rank."""

    def __init__(self) -> None:
        self._count = 0
        self._digest = 0

    def note(self, batch: Structure) -> None:
        """Adds a batch, and compares ranks if the number of batches says so.

        Args:
            batch: The batch, or a list of batches.

        Raises:
            AutoError: On all ranks, if they have read different batches.
        """
        self._count += 1
        for leaf in backend.flatten(batch):
            if hasattr(leaf, "shape"):
                shape = repr((tuple(leaf.shape), str(leaf.dtype))).encode()
                self._digest = zlib.crc32(shape, self._digest)
                self._digest = zlib.crc32(_some_of(leaf), self._digest)
        if comparisons.is_due(self._count):
            self.require_same("auto/fit/batches")

    def require_same(self, name: str) -> None:
        """Raises an error on all ranks if they have read different batches.

        Args:
            name: String, the name of the exchange.

        Raises:
            AutoError: If they have.
        """
        own = self._count.to_bytes(_NUMBER_BYTES, "little")
        own += self._digest.to_bytes(_NUMBER_BYTES, "little")
        rows = arrays.gather_digests(own, name, global_process_set)
        apart = [
            rank for rank, row in enumerate(rows) if (row != rows[0]).any()
        ]
        if not apart:
            return
        raise AutoError(
            f"{script.line()} trains on data that differ between ranks: up to "
            f"batch {self._count:,}, ranks {rank_list(apart)} have read other "
            "batches than rank 0. All ranks must read the same batches, of "
            "which each trains on a part: seed what draws or shuffles them "
            "(`keras.utils.set_random_seed`, `numpy.random.default_rng(seed)`, "
            "`generator=` of a `DataLoader`), and leave the rank and the time "
            "out of it."
        )


def _some_of(leaf: Any) -> bytes:
    """Returns some numbers of each row of a tensor, spread over the row."""
    array = backend.as_array(leaf)
    if not array.size or not array.shape:
        return array.tobytes()
    rows = array.reshape(len(array), -1)
    return rows[:, :: max(1, rows.shape[1] // _NUMBERS)].tobytes()


def install() -> None:
    """Notes each batch that Keras reads in a pass of `fit`."""
    hooks.subscribe(
        events.BATCHES_READ,
        _noting,
        ring=Ring.UNCHANGED,
        purpose="ranks train on parts of the same batches",
    )


def _noting(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def read_and_note(self: Any) -> Any:
        found = read(self)
        running = data_passes.current()
        if running is not None and running.is_training:
            digests: Any = running.digests
            digests.note(found)
        return found

    return read_and_note
