"""The order in which wrappers of one function are put around it.

Several features change `Model.fit` and its like. Which of them is outside of
which depends on the rings alone, not on the order in which they are installed.
"""

from __future__ import annotations

import enum


class Ring(enum.IntEnum):
    """The position of a wrapper among those of one function, outermost first.

    In one ring, a later wrapper is around the earlier ones.
    """

    JOIN = 0
    """Processes that join the job come into the call."""
    COMPARE = 1
    """Ranks compare what the whole call has left."""
    UNCHANGED = 2
    """A call of a program for one process becomes one of all ranks."""
    WEIGHT = 3
    """What a rank computes counts with the number of its rows."""
    JOB = 4
    """Ranks reduce, agree, write once, or refuse."""
    OBSERVE = 5
    """The call is measured. Inside is the function of Keras itself."""
