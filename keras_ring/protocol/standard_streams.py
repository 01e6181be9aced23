"""Descriptors 0, 1 and 2, if the parent of this process has closed them.

Cron jobs, init scripts and daemons do that. The next file or socket then gets
such a number, and printed text is written into it.
"""

import os
import sys

# The number, the name in `sys`, and the mode in which Python opens it.
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def fill_closed() -> None:
    """Opens /dev/null on descriptors 0, 1 and 2 if they are closed.

    Call it before other files are opened.
    """
    for fd, name, mode in _STREAMS:
        try:
            os.fstat(fd)
        except OSError:
            _fill(fd)
        if getattr(sys, name) is None:
            stream = open(fd, mode, closefd=False)
            setattr(sys, name, stream)


def _fill(fd: int) -> None:
    # This is the lowest free number, because those below are open.
    opened = os.open(os.devnull, os.O_RDWR)
    if opened == fd:
        os.set_inheritable(fd, True)
    else:
        # Another thread has taken the number.
        os.close(opened)
