"""The standard input of the command, which all ranks may read.

Each rank reads all of it, so it is read to its end before ranks start. An input
without an end, such as a terminal, cannot be given to ranks.
"""

import fcntl
import os
import re
import select
import stat
import struct
import termios
from collections.abc import Sequence
from pathlib import Path

from keras_ring.launch.python_command import reads_standard_input
from keras_ring.launch.usage import UsageError, say

# Values of `--stdin`.
ALL, NONE = "all", "none"
# The input is sent to each host as one message.
MOST_BYTES = 64 << 20
_READ = 1 << 16
# Seconds of silence after which a message says that the command waits.
_SILENCE = 5.0
_SHELL = re.compile(r"(ba|da|k|z)?sh")


def reads_program(command: Sequence[str]) -> bool:
    """Returns whether a command takes its program from standard input."""
    if "/dev/stdin" in command:
        return True
    if len(command) > 2 and command[-1] == "-":
        # The command may begin with `env`, `nice` or similar programs.
        command = command[-2:]
    return reads_standard_input(command) or _is_open_shell(command)


def _is_open_shell(command: Sequence[str]) -> bool:
    """Returns whether a command is a shell without a script."""
    if not command or _SHELL.fullmatch(Path(command[0]).name) is None:
        return False
    for word in command[1:]:
        if word == "-s":
            return True
        if word in ("-", "--") or not word.startswith(("-", "+")):
            return word == command[-1] and word in ("-", "--")
        if word in ("--version", "--help") or re.match(r"-\w*c", word):
            return False
    return True


def read(command: Sequence[str], option: str | None, fd: int = 0) -> bytes:
    """Returns the bytes that each rank gets as standard input.

    Args:
        command: Sequence of strings, the program and arguments of the ranks.
        option: String, the value of `--stdin`. Defaults to `ALL` if standard
            input is a file or has the program of the command, else to `NONE`.
        fd: Integer, the descriptor of standard input. The position in a file
            does not change.

    Raises:
        UsageError: If ranks need standard input, and it is a terminal, too
            long, or empty although the program should be in it; or if `option`
            is unknown.
    """
    if option not in (None, ALL, NONE):
        raise UsageError(f"--stdin {option!r}: expected {ALL} or {NONE}")
    if option == NONE:
        return b""
    mode = os.fstat(fd).st_mode
    is_file = stat.S_ISREG(mode)
    must = option == ALL or reads_program(command)
    if not must and not is_file:
        _tell_of_unread(fd)
        return b""
    why = (
        f"--stdin {ALL} gives standard input to each rank"
        if option == ALL
        else "the command reads its program from standard input"
    )
    if os.isatty(fd):
        raise UsageError(
            f"{why}, and this is a terminal; redirect it, as by < train.py, or"
            " name the program: -- python train.py"
        )
    data = b""
    if is_file:
        data = _read_file(fd)
    elif not stat.S_ISCHR(mode):
        data = _read_pipe(fd, why)
    if len(data) > MOST_BYTES:
        text = f"standard input has more than {MOST_BYTES >> 20} MiB"
        if must:
            raise UsageError(f"{text}; have ranks read a file of that name")
        say(f"{text}, so ranks do not get it; have them read the file itself")
        return b""
    if must and not data and option is None:
        raise UsageError(
            f"{why}, and there is nothing in it; name the program: -- python"
            " train.py"
        )
    return data


def _read_file(fd: int) -> bytes:
    # Keep the position: a shell loop may read the same file line by line.
    position = os.lseek(fd, 0, os.SEEK_CUR)
    data = bytearray()
    while len(data) <= MOST_BYTES:
        piece = os.pread(fd, _READ, position + len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def _read_pipe(fd: int, why: str) -> bytes:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    data = bytearray()
    told = False
    while len(data) <= MOST_BYTES:
        if not told and not poll.poll(_SILENCE * 1000):
            told = True
            say(f"{why}: waiting for its end")
        piece = os.read(fd, _READ)
        if not piece:
            break
        data += piece
    return bytes(data)


def _tell_of_unread(fd: int) -> None:
    """Prints a message if standard input has bytes that no rank reads."""
    try:
        waiting = fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0")
    except OSError:
        return
    if not os.isatty(fd) and struct.unpack("i", waiting)[0] > 0:
        say(
            "there is something in standard input, and ranks have none;"
            f" --stdin {ALL} gives it to each of them"
        )
