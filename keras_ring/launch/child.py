"""Becomes one rank: ties its life to the launcher's, then runs the command.

The launcher starts this file by its path, as `python -I -S child.py
LAUNCHER_PID CPUS FILES COMMAND...`. CPUS are the processors that the rank may
run on, and FILES is its soft limit of open files; `""` stands for those of the
launcher. The program uses the standard library only, so it takes about 20 ms
and works for any command.

It is a program of its own, because `preexec_fn` runs Python code between fork
and exec. That can deadlock if the parent has threads, as a test process that
has loaded TensorFlow does.
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
    # SIGKILL, since no launcher is left to kill a rank that ignores SIGTERM.
    # The setting survives exec. It covers this process only; the watchdog
    # covers the processes that the command starts.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # If the launcher has died before the line above, no signal comes, but the
    # parent is already another process.
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
    # Python ignores these two, and ignored signals stay ignored after exec:
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
