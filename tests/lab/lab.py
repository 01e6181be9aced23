"""The lab, as tests use it."""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_HOSTS = Path(__file__).with_name("hosts")
# One lab at a time on a machine.
_LOCK = Path("/run/lock/kr-lab.lock")
ROOT = Path(__file__).parents[2]


def missing() -> str:
    """Returns why there can be no lab here; `""` if there can."""
    if os.geteuid() != 0:
        return "the lab needs root (to make network namespaces)"
    checked = subprocess.run([_HOSTS, "check"], capture_output=True, text=True)
    if checked.returncode != 0:
        return f"the lab lacks: {', '.join(checked.stdout.split(chr(10))[1:])}"
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    if not any((Path(each) / "sshd").exists() for each in path.split(":")):
        return "the lab needs sshd (Debian's openssh-server)"
    return ""


class Lab:
    """Hosts `kr-h0`, `kr-h1`, ... with an sshd each.

    Args:
        ssh_config: File for `ssh -F` by which they are reached.
    """

    def __init__(self, ssh_config: str) -> None:
        self.ssh = f"ssh -F {ssh_config}"

    def __call__(self, *words: str) -> str:
        """Runs a verb of `tests/lab/hosts`; returns what it prints."""
        return _hosts(*words)

    def on(self, host: str, *command: str) -> list[str]:
        """Returns the command that runs another on a host."""
        return [str(_HOSTS), "exec", host, "--", *command]

    def keras_ring(self, *words: str) -> list[str]:
        """Returns the command that runs `keras-ring` on the first host."""
        return self.on("h0", sys.executable, "-m", "keras_ring", *words)

    def run(self, hosts: str, *words: str) -> list[str]:
        """Returns the command of a job on these hosts, from the first."""
        return self.keras_ring("run", "-H", hosts, "--rsh", self.ssh, *words)


def _hosts(*words: str) -> str:
    return subprocess.run(
        [_HOSTS, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@contextlib.contextmanager
def no_lab() -> Iterator[None]:
    """Waits until nobody has a lab, and keeps it so."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _hosts("down")
        yield


@contextlib.contextmanager
def lab(count: int) -> Iterator[Lab]:
    """Makes hosts, and removes them in the end.

    Whoever comes while another has a lab waits for it.
    """
    with no_lab():
        try:
            _hosts("up", str(count))
            yield Lab(_hosts("sshd", "up"))
        finally:
            _hosts("down")
