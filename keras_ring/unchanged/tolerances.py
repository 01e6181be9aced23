"""How far values of parts of a batch may be from those of the whole batch.

Sums are made in another order, so they differ by rounding. All tables are by
the bytes of a floating point type; those of 1 byte must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

VALUES = {
    1: (0.0, 0.0),
    2: (0.03, 1e-3),
    4: (1e-4, 1e-6),
    8: (1e-9, 1e-12),
}
"""Relative to the value, and to the largest of all, as terms may cancel."""

GRADIENTS = {2: (0.1, 1e-2), 4: (1e-3, 1e-5), 8: (1e-9, 1e-12)}
"""Relative to the largest gradient of the variable, and to that of all.

More terms cancel in a gradient than in a result, so short types get more.
"""

CHANGES = {num_bytes: of_one for num_bytes, (of_one, _) in VALUES.items()}
"""Relative to the largest change of a variable."""


def are_close(
    expected: npt.NDArray[Any],
    found: npt.NDArray[Any],
    num_bytes: int | None = None,
) -> bool:
    """Returns whether an array is that of the whole batch, up to rounding.

    Args:
        expected: The array of the whole batch. One of integers or booleans
            must be the same.
        found: The array of the parts.
        num_bytes: Integer, the bytes of the type that was computed in.
            Defaults to those of `expected`; at most 4, as Keras computes in
            float32 on some frameworks, whatever the type.
    """
    if expected.dtype.kind in "iub":
        return bool((expected == found).all())
    relative, of_largest = VALUES[min(num_bytes or expected.itemsize, 4)]
    return bool(
        np.allclose(
            found,
            expected,
            rtol=relative,
            atol=of_largest * largest(expected),
            equal_nan=True,
        )
    )


def largest(array: npt.NDArray[Any]) -> float:
    """Returns the largest magnitude in an array; 0 if it is empty."""
    return float(np.max(np.abs(array), initial=0.0))
