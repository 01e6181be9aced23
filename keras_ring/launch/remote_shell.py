"""The command that starts an agent on another host."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

# The code contains nothing of the job, which comes through the pipe. The pipe
# is read without a buffer, because the bytes after the first line are for the
# agent. The first folder of sys.path is the home directory on that host.
_BOOT = (
    "import sys; del sys.path[0]; import json; "
    "hello = json.loads(open(0, 'rb', 0, closefd=False).readline()); "
    "folder = hello['package']; "
    "folder in sys.path or sys.path.insert(0, folder); "
    "from keras_ring.launch.agent import main; main(hello)"
)


@dataclass(frozen=True, kw_only=True)
class RemoteShell:
    """The command that reaches another host.

    Args:
        command: Tuple of strings, the program and options that replace `ssh`,
            or `()`.
        port: Integer, the port of sshd. `None` for that of ssh's configuration.
        identity: String, the file of the private key. `None` for those of ssh's
            configuration.
        connect_timeout: Integer, the seconds that ssh tries to connect.
        takes_words: Boolean, whether `command` runs the words that follow the
            host. Programs like ssh pass them to a shell, as one line.
    """

    command: tuple[str, ...] = ()
    port: int | None = None
    identity: str | None = None
    connect_timeout: int = 10
    takes_words: bool = False

    def start_agent(self, host: str) -> list[str]:
        """Returns the command that starts an agent on this host."""
        if self.takes_words:
            return [*self._to(host), *_agent()]
        return [*self._to(host), f"exec {shlex.join(_agent())}"]

    def try_by_hand(self, host: str) -> str:
        """Returns a command that shows the user why a host is not reached."""
        return shlex.join([*self._to(host), "true"])

    def _to(self, host: str) -> list[str]:
        # ssh takes an IPv6 address without the brackets.
        name = host.replace("[", "").replace("]", "")
        if self.command:
            return [*self.command, name]
        words = ["ssh", "-o", "BatchMode=yes"]
        words += ["-o", f"ConnectTimeout={self.connect_timeout}"]
        if self.port is not None:
            words += ["-p", str(self.port)]
        if self.identity is not None:
            words += ["-i", self.identity]
        return [*words, name]


def local_agent() -> list[str]:
    """Returns the command that starts an agent on this host."""
    return _agent()


def package_folder() -> str:
    """Returns the folder that contains this package on this host."""
    return str(Path(__file__).resolve().parents[2])


def _agent() -> list[str]:
    return [sys.executable, "-u", "-c", _BOOT]
