"""Runs a command with a deadline, and leaves nothing of it."""

import os
import signal
import subprocess

_GRACE = 10.0


def run(command, environment, folder, deadline):
    """Runs a command; returns why it failed, or an empty text.

    Args:
        command: Program and arguments.
        environment: Its variables, all of them.
        folder: Where `stdout` and `stderr` go.
        deadline: Seconds until it is ended, with all that it has started.
    """
    with (
        (folder / "stdout").open("wb") as stdout,
        (folder / "stderr").open("wb") as stderr,
    ):
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        try:
            code = process.wait(timeout=deadline)
        except subprocess.TimeoutExpired:
            return f"took more than {deadline:g} s"
        finally:
            _end(process)
    if code == 0:
        return ""
    return f"exit code {code}: {last_words(folder)}"


def last_words(folder):
    """Returns the line of a program's output that best tells its end."""
    for name in ("stderr", "stdout"):
        text = (folder / name).read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line or "error:" in line]
        if errors or lines:
            return (errors or lines)[-1]
    return "it said nothing"


def _end(process):
    """Ends what is left; a launcher gets the time to end its ranks."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, signum)
        try:
            process.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            continue
