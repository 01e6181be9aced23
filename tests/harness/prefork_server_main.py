"""The prefork server itself; a program: `prefork_server_main.py SOCKET`."""

import fcntl
import gc
import json
import os
import random
import socket
import sys
import warnings
from typing import Any

import forked
import numpy as np
import rank_main
import tensorflow as tf

_MAX_FDS = 16
# Numbers above those that ranks are told of.
_FIRST_OWN_FD = 600


def _moved(fd: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN_FD)
    os.close(fd)
    return moved


def _receive(requests: socket.socket) -> tuple[Any, list[int]]:
    data, fds, _, _ = socket.recv_fds(requests, 1 << 18, _MAX_FDS)
    return (json.loads(data) if data else None), [_moved(fd) for fd in fds]


def _become_rank(request: Any) -> None:
    os.chdir(request["cwd"])
    sys.argv = [rank_main.__file__, *request["start"]]
    # What processes that multiprocessing spawns run again, by its path.
    sys.modules["prefork_server_main"] = sys.modules["__main__"]
    sys.modules["__main__"] = rank_main
    rank_main.__spec__ = None
    # As in fresh interpreters, no two ranks draw the same.
    random.seed()
    np.random.seed()


def _exit_code(pid: int, *options: int) -> int | None:
    flags = os.WEXITED
    for option in options:
        flags |= option
    ended = os.waitid(os.P_PID, pid, flags)
    return None if ended is None else forked.returncode(ended)


def main() -> int:
    """Answers requests; returns in each rank, and at the end."""
    requests = socket.socket(fileno=_moved(int(sys.argv[1])))
    # Loaded when it is first used.
    assert tf.keras.Model
    # Collections in ranks, and their ends, would copy every page of it.
    gc.collect()
    gc.freeze()
    # It has threads of OpenBLAS, which sees to forks.
    warnings.filterwarnings(
        "ignore", message=".*fork", category=DeprecationWarning
    )
    while True:
        request, fds = _receive(requests)
        if request is None:
            return 0
        if "start" in request:
            files = dict(zip(request["numbers"], fds, strict=True))
            pid = forked.fork(request["environment"], files)
            if pid == 0:
                requests.close()
                _become_rank(request)
                return rank_main.main()
            answer: int | None = pid
        elif "ready" in request:
            answer = None
        elif "poll" in request:
            answer = _exit_code(request["poll"], os.WNOHANG, os.WNOWAIT)
        else:
            answer = _exit_code(request["wait"])
        for fd in fds:
            os.close(fd)
        requests.send(json.dumps(answer).encode())


if __name__ == "__main__":
    sys.exit(main())
