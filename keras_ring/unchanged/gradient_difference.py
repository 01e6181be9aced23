"""Differences between gradients of parts of a batch and of the whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from keras_ring._typing import Tensor
from keras_ring.core import arrays, reduce_ops, topology
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.backends import backend
from keras_ring.tensorflow import reductions
from keras_ring.unchanged import tolerances

Updates = list[tuple[str, Tensor]]


def unequal_weights(rows: int) -> list[int] | None:
    """Returns weights for parts with unequal numbers of rows, one per rank.

    Unequal parts tell more than equal ones.

    Args:
        rows: Integer, the number of rows of the batch.

    Returns:
        A list of integers, or `None` if the batch has too few rows.
    """
    unequal = list(range(1, topology.size() + 1))
    return unequal if rows >= sum(unequal) else None


def averaged(updates: Updates, name: str) -> Updates:
    """Returns gradients averaged over all ranks.

    Args:
        updates: List of pairs, the path of a variable and its gradient.
        name: String, the name of the exchange.
    """
    averages = reductions.grouped_allreduce(
        [gradient for _, gradient in updates],
        op=reduce_ops.Average,
        name=name,
    )
    return [
        (path, average)
        for (path, _), average in zip(updates, averages, strict=True)
    ]


def difference(
    whole: Updates, parts: Updates, name: str, num_bytes: int = 8
) -> str | None:
    """Describes how gradients differ.

    All ranks must call this.

    Args:
        whole: The gradients of a batch, with the paths of their variables.
        parts: The gradients that parts of it have given.
        name: String, the name of the exchange.
        num_bytes: Integer, the bytes of the smallest type that they were
            computed in, if it is smaller than theirs. Defaults to `8`.

    Returns:
        String, which may differ between ranks, or `None` on all ranks if there
        is no difference.
    """
    paths = [path for path, _ in whole]
    if paths != [path for path, _ in parts]:
        found = 1.0, "it updates other variables"
    else:
        found = 0.0, ""
        of_all = max((_largest(_array(each)) for _, each in whole), default=0)
        for (path, of_whole), (_, of_parts) in zip(whole, parts, strict=True):
            a, b = _array(of_whole), _array(of_parts)
            if (np.isfinite(a) != np.isfinite(b)).any():
                found = 1.0, f"of {path!r}, one of them is no number"
                break
            size = min(of_whole.dtype.size, num_bytes)
            of_one, of_all_ones = tolerances.GRADIENTS[size]
            largest, apart = _largest(a), _largest(a - b)
            if apart > of_one * largest + of_all_ones * of_all:
                found = 1.0, _shown(path, a, b, largest, apart)
                break
    # The largest of all ranks decides, because what one rank takes for rounding
    # another may take for a difference.
    worst = arrays.allreduce(
        np.array([found[0]]),
        reduce_ops.Max,
        name=name,
        process_set=global_process_set,
    )
    if not worst[0]:
        return None
    return found[1] or "on another rank they differ"


def _array(tensor: Tensor) -> npt.NDArray[np.float64]:
    return np.asarray(backend.cast(tensor, "float64"))


def _largest(array: npt.NDArray[np.float64]) -> float:
    """Returns the largest magnitude of the finite elements."""
    finite = np.abs(array[np.isfinite(array)])
    return float(np.max(finite, initial=0.0))


def _shown(
    path: str,
    whole: npt.NDArray[np.float64],
    parts: npt.NDArray[np.float64],
    largest: float,
    apart: float,
) -> str:
    norm = float(np.linalg.norm(whole))
    factor = float(np.vdot(whole, parts)) / norm**2 if norm else 0.0
    residue = float(np.linalg.norm(parts - factor * whole))
    if norm and residue < 1e-3 * norm:
        how = f"it is {factor:.4g} times as large"
        if abs(factor * topology.size() - 1) < 1e-3:
            how += ", as of a sum"
        return f"of {path!r}, {how}"
    return f"of {path!r}, by {apart:.2g} where the largest is {largest:.2g}"
