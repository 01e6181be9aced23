"""Becomes one rank: ties its life to the launcher's, then runs the command.

Started by path (`python -I -S child.py LAUNCHER_PID CPUS FILES COMMAND...`,
with the processors that it may run on and its soft limit of open files, or ""
for those of the launcher), standard library only, so it costs some 20 ms and
works whatever the command is.

A small program and not `preexec_fn`: that runs Python code between fork and
exec, which can deadlock when the parent has threads, as a test process with
TensorFlow loaded has.
"""

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_COMMAND_NOT_EXECUTABLE = 126
_COMMAND_NOT_FOUND = 127


def _die_with_parent(launcher_pid: int) -> None:
    # SIGKILL, since nobody is left to insist when a rank ignores SIGTERM. The
    # setting survives exec. It covers this process only; the watchdog covers
    # what the command starts in turn.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The launcher may have died before the line above: then no signal comes,
    # but the parent is already another process.
    if os.getppid() != launcher_pid:
        os._exit(1)


def main() -> int:
    """Runs the command given on the command line in place of this process."""
    launcher_pid, cpus, open_files, *command = sys.argv[1:]
    _die_with_parent(int(launcher_pid))
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    if open_files:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(open_files), hard))
    # Python ignores these two, and what is ignored stays ignored after exec:
    # `yes | head` in a rank's shell script would then never end quietly.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError as error:
        reason, code = error.strerror, _COMMAND_NOT_FOUND
    except OSError as error:
        reason, code = error.strerror, _COMMAND_NOT_EXECUTABLE
    sys.stderr.write(f"keras-ring: cannot run {command[0]!r}: {reason}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
