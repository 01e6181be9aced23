"""Finds and kills the processes that a job has started; also its watchdog.

A rank may start others (a shell wrapper, data workers), put them into other
process groups (`timeout`) or even other sessions (daemons). A process belongs
to the job when its session is that of a rank, or when it inherited the job's
`KERAS_RING_ERROR_FILE`, whose directory is unique to the job.

As a script (`python -I -S job_processes.py`), this module is the watchdog. It
reads the directory and the session ids of the ranks, each terminated by a zero
byte, from its standard input. Only the launcher holds the other end of that
pipe. If the input ends without the word "done", the launcher was killed; the
watchdog then kills the processes that are left of the job, and removes the
directory. This module uses the standard library only.
"""

import os
import signal
import sys
import time
from collections.abc import Collection

_MARKER = b"KERAS_RING_ERROR_FILE="
_DONE = b"done"
_KILL_PATIENCE = 5.0
# PF_EXITING of the kernel's include/linux/sched.h.
_EXITING = 0x4
# Name of the process that holds the shared memory of a rank:
# csrc/comm/host/memory_holder.h.
_HOLDER = "kr-holder"


def _stat_of(pid: int) -> list[bytes]:
    """Returns the fields of `/proc/<pid>/stat` from the state on, or `[]`."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            text = stat.read()
    except OSError:
        return []
    # The name, in parentheses, may itself contain spaces and parentheses.
    return text[text.rindex(b")") + 1 :].split()


def is_exiting(pid: int) -> bool:
    """Returns whether a process has begun to end, or has ended.

    While the kernel frees the memory of a process, only this flag shows that
    its program will not continue.
    """
    fields = _stat_of(pid)
    return not fields or bool(int(fields[6]) & _EXITING)


def _session_of(pid: int) -> int | None:
    """Returns the session of a live process, or `None` if it has ended."""
    fields = _stat_of(pid)
    if not fields:
        return None
    state, _, _, session = fields[:4]
    return None if state in (b"Z", b"X") else int(session)


def _has_marker(pid: int, directory: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            variables = environ.read().split(b"\0")
    except OSError:
        return False
    start = _MARKER + os.fsencode(directory) + b"/"
    return any(variable.startswith(start) for variable in variables)


def find(directory: str | None, sessions: Collection[int]) -> set[int]:
    """Returns the ids of the live processes of a job.

    Args:
        directory: String, the job's private directory. `None` to select by
            session only.
        sessions: Session ids of the ranks. An id is not reused until its rank
            has been waited for, so wait for ranks last.
    """
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        pid = int(entry)
        session = _session_of(pid)
        if session is None:
            continue
        if session in sessions or (directory and _has_marker(pid, directory)):
            found.add(pid)
    return found


def _is_holder(pid: int) -> bool:
    """Returns whether a process only holds the shared memory of a rank.

    It ends by itself after its rank, so it is not a leftover of a program.
    """
    try:
        with open(f"/proc/{pid}/comm") as name:
            return name.read().strip() == _HOLDER
    except OSError:
        return False


def send(pids: Collection[int], signum: int) -> None:
    """Sends a signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except OSError:
            continue


def kill_all(directory: str | None, sessions: Collection[int]) -> set[int]:
    """Kills every process of a job and waits until they are gone.

    Returns:
        Set of the ids of the killed processes, without those that only hold
        memory.
    """
    killed: set[int] = set()
    give_up = time.monotonic() + _KILL_PATIENCE
    while time.monotonic() < give_up:
        # Repeat until none is left: a process may start another one between
        # the search and the kill.
        alive = find(directory, sessions)
        if not alive:
            break
        holders = {pid for pid in alive if _is_holder(pid)}
        send(alive, signal.SIGKILL)
        killed |= alive - holders
        time.sleep(0.005)
    return killed


def _guard() -> None:
    # Ctrl-C and similar signals are for the launcher, which this outlives.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    # A word without a zero byte is incomplete.
    words = sys.stdin.buffer.read().split(b"\0")[:-1]
    if not words or _DONE in words:
        return
    directory = os.fsdecode(words[0])
    kill_all(directory, {int(word) for word in words[1:]})

    import shutil

    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _guard()
