"""Finds and kills the processes that a job has started; also its watchdog.

A rank may start others (a shell wrapper, data workers), put them into other
process groups (`timeout`) or even other sessions (daemons). A process belongs
to the job when its session is that of a rank, or when it inherited the job's
`KERAS_RING_ERROR_FILE`, whose directory is unique to the job.

Run as a script (`python -I -S job_processes.py`) it is the watchdog: it reads
the directory and the session ids of the ranks from its standard input, whose
other end only the launcher holds, each with a zero byte behind it. The end of
that input without the word "done" means that the launcher was killed; the
watchdog then kills what is left of the job, and removes the directory.
Standard library only.
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
# Of the process that shares a rank's memory: csrc/comm/host/memory_holder.h.
_HOLDER = "kr-holder"


def _stat_of(pid: int) -> list[bytes]:
    """Returns the fields of `/proc/<pid>/stat` from its state on, or none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            text = stat.read()
    except OSError:
        return []
    # The name, in parentheses, may itself hold spaces and parentheses.
    return text[text.rindex(b")") + 1 :].split()


def is_exiting(pid: int) -> bool:
    """Returns whether a process has begun to end, or has ended.

    The kernel may still be busy with its memory: then nothing else tells that
    it will not return to its program.
    """
    fields = _stat_of(pid)
    return not fields or bool(int(fields[6]) & _EXITING)


def _session_of(pid: int) -> int | None:
    """Returns the session of a live process, None when it has ended."""
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
        directory: The job's private directory; None to go by session only.
        sessions: Session ids of the ranks. An id is safe from reuse while its
            rank has not been waited for, so wait for ranks last.
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
    """Returns whether a process is there only to hold a rank's memory.

    It ends by itself after its rank has, so no program has left it behind.
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
        The ids of the processes that had to be killed, without those that end
        by themselves.
    """
    killed: set[int] = set()
    give_up = time.monotonic() + _KILL_PATIENCE
    while time.monotonic() < give_up:
        # Again until none is left: a process may start another one between
        # the look and the kill.
        alive = find(directory, sessions)
        if not alive:
            break
        holders = {pid for pid in alive if _is_holder(pid)}
        send(alive, signal.SIGKILL)
        killed |= alive - holders
        time.sleep(0.005)
    return killed


def _guard() -> None:
    # Ctrl-C and friends are for the launcher; the watchdog outlives it.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    # What has no zero byte behind it was cut.
    words = sys.stdin.buffer.read().split(b"\0")[:-1]
    if not words or _DONE in words:
        return
    directory = os.fsdecode(words[0])
    kill_all(directory, {int(word) for word in words[1:]})

    import shutil

    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _guard()
