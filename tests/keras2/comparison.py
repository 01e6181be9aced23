"""Ranks against one process."""

import numpy as np

# Half precision, whose errors are far larger: layers round about eight times
# in a step, and that much of what is trained may be different.
_BITS = {"mixed_float16": 11, "mixed_bfloat16": 8}


def difference(one, several):
    """Returns the largest difference over the largest value, of variables."""
    largest = 0.0
    for a, b in zip(several, one, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        scale = np.max(np.abs(b), initial=np.finfo("float64").tiny)
        largest = max(largest, np.max(np.abs(a - b), initial=0.0) / scale)
    return float(largest)


def bound(call):
    """Returns the largest difference of a call, by the words of its name."""
    for policy, bits in _BITS.items():
        if any(policy in str(word) for word in call):
            return 8 * 2.0**-bits
    return 1e-9
