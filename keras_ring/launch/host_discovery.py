"""The hosts that a program of the user tells, again and again."""

import shlex
import subprocess
import threading
import time
from types import TracebackType

from keras_ring.launch.hosts import Host, parse_discovered
from keras_ring.launch.usage import UsageError, say

# Seconds between the end of a call and the next one.
_PAUSE = 1.0
# Seconds that a call may take.
_LIMIT = 30.0
_MOST_SHOWN = 200


class HostDiscovery:
    """Calls the program of `--host-discovery-script` every second.

    While it fails, the hosts are those of its last success. A context manager,
    in which a thread calls it.

    Args:
        command: String, the program and its arguments.
        hosts: Tuple of `Host`s, what it has told before.
    """

    def __init__(self, command: str, hosts: tuple[Host, ...] = ()) -> None:
        self._command = command
        self._hosts = hosts
        self._problem = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "HostDiscovery":
        """Begins to call the program."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Calls it no more. A call that runs ends by itself."""
        self._over.set()

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that it has told last."""
        return self._hosts

    def wait_for(self, slots: int, seconds: float) -> tuple[Host, ...]:
        """Calls it until its hosts have so many slots, and returns them.

        Args:
            slots: Integer, the number of slots.
            seconds: Float, the time limit.

        Raises:
            UsageError: If they have fewer when the time is over.
        """
        end = time.monotonic() + seconds
        told = -1
        while True:
            self._call()
            there = sum(host.slots for host in self._hosts)
            if there >= slots:
                return self._hosts
            if time.monotonic() >= end:
                raise UsageError(
                    f"--host-discovery-script: its hosts have {there} slots,"
                    f" and {slots} are needed; none came in {seconds:g} s"
                )
            if there != told:
                say(f"waiting for hosts: there are {there} of {slots} slots")
            told = there
            time.sleep(_PAUSE)

    def _run(self) -> None:
        while not self._over.wait(_PAUSE):
            self._call()

    def _call(self) -> None:
        try:
            done = subprocess.run(
                shlex.split(self._command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT,
                check=True,
                # Ctrl-C is for the launcher.
                start_new_session=True,
            )
            hosts = parse_discovered(done.stdout)
            if self._hosts and not hosts:
                # More likely a fault of it than the end of all hosts.
                raise UsageError("it has printed no host")
            self._hosts = hosts
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or [""])[-1]
            self._tell(f"exit code {error.returncode}: {last}".rstrip(": "))
        except subprocess.TimeoutExpired:
            self._tell(f"it has not ended in {_LIMIT:g} s")
        except (OSError, ValueError, UsageError) as error:
            self._tell(str(error))
        else:
            self._problem = ""

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            say(f"--host-discovery-script failed: {problem[:_MOST_SHOWN]}")
        self._problem = problem
