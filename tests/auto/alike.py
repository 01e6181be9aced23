"""What ranks make of a program, and what one process makes of it."""

import numpy as np

BOUND = 1e-12


def require_alike(found, wanted, where="", bound=BOUND):
    """Compares structures of numbers, each with its largest."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for key, value in wanted.items():
            require_alike(found[key], value, f"{where}/{key}", bound)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for index, value in enumerate(wanted):
            require_alike(found[index], value, f"{where}/{index}", bound)
    else:
        scale = np.max(np.abs(wanted))
        assert np.max(np.abs(np.asarray(found) - wanted)) <= bound * scale, (
            where
        )


def require_same_weights(by_rank):
    """Requires the weights of all ranks to be the same to the bit."""
    for other in by_rank[1:]:
        for a, b in zip(other, by_rank[0], strict=True):
            assert np.array_equal(a, b)
