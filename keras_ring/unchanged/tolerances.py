"""How far values of parts of a batch may be from those of the whole batch.

Sums are made in another order, so they differ by rounding. All tables are by
the bytes of a floating point type; those of 1 byte must be equal.
"""

from __future__ import annotations

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
