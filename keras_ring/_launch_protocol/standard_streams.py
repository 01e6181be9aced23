"""Descriptors 0, 1 and 2, where whoever started this process closed them.

Cron jobs, init scripts and daemons do that. The next file or socket that is
opened then gets such a number, and whatever prints writes into it.
"""

import os
import sys

# Number, name in `sys`, and how Python opens it.
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def fill_closed() -> None:
    """Opens /dev/null on 0, 1 and 2 where they are closed.

    To be called before anything is opened that stays open.
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
    # The lowest free number is this one, as those below are open.
    opened = os.open(os.devnull, os.O_RDWR)
    if opened == fd:
        os.set_inheritable(fd, True)
    else:
        # Another thread was faster, and has it now.
        os.close(opened)
