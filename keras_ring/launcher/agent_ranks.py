"""An agent's ranks: how they are started, what they print, how they end."""

import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keras_ring._launch_protocol import contract, interfaces
from keras_ring.errors import ConfigurationError
from keras_ring.launcher import (
    agent_results,
    host_pages,
    job,
    job_processes,
    open_files,
    signals,
    timelines,
)
from keras_ring.launcher.agent_answers import AnswerLater
from keras_ring.launcher.agent_network import HostNetwork
from keras_ring.launcher.event_loop import EventLoop
from keras_ring.launcher.frames import Frame
from keras_ring.launcher.rank_command import check_command, with_files
from keras_ring.launcher.rank_process import RankProcess
from keras_ring.launcher.sharing import Machine, Share, share_cores
from keras_ring.launcher.usage import UsageError

_READ = 64 * 1024
# Seconds in which the pipes of dead ranks are read.
_DRAIN_TIME = 2.0


class AgentRanks:
    """The ranks of this host.

    Args:
        hello: What the launcher has said first (`Agent`).
        events: Tells when ranks print or end.
        network: Has the socket of rank 0, if that is here.
        say: Sends a message to the launcher.
        answer_later: Sends what a function returns, from a thread of its own.
    """

    def __init__(
        self,
        hello: Mapping[str, Any],
        *,
        events: EventLoop,
        network: HostNetwork,
        say: Callable[..., None],
        answer_later: AnswerLater,
    ) -> None:
        self._hello = hello
        self._events = events
        self._network = network
        self._say = say
        self._answer_later = answer_later
        self._job: job.Job | None = None
        self._ranks: list[int] = []
        self._running: list[RankProcess] = []
        # Descriptor -> rank and stream.
        self._streams: dict[int, tuple[int, str]] = {}
        self._files: dict[str, bytes] = {}
        self._stdin = b""
        # Where ranks leave timelines, if the launcher does not see it.
        self._timeline: Path | None = None
        self.verbs: dict[str, Callable[[Frame], None]] = {
            "file": self._keep_file,
            "stdin": self._keep_stdin,
            "start": self._start,
            "signal": self._signal,
            "pages": self._pages,
        }

    @property
    def running(self) -> bool:
        """Whether any of them has not ended."""
        return bool(self._running)

    def prepare(self) -> str:
        """Returns what this host lacks for the job; `""` if nothing.

        From then on this process is in the working directory of the ranks.
        """
        directory = self._hello["directory"]
        try:
            self._share()
            interfaces.choose(
                self._hello["interface"], interfaces.own_addresses()
            )
            os.chdir(directory)
            check_command(
                self._hello["command"], self._environment().get("PATH")
            )
        except OSError as error:
            return f"the working directory {directory}: {error.strerror}"
        except (UsageError, ConfigurationError) as error:
            return str(error)
        return ""

    def listen(self, wanted: bool) -> None:
        """Reads what ranks print from now on, or has them wait."""
        for fd in self._streams:
            self._events.want_to_read(fd, wanted, self._read, fd)

    def end(self) -> int:
        """Kills what is left of them, and reads the last that they printed.

        Returns:
            The number of processes that were left.
        """
        if self._job is None:
            return 0
        leftover = len(self._job.kill_all())
        self._drain()
        return leftover

    def results(self) -> agent_results.Results:
        """Returns what they have left for the launcher."""
        return agent_results.Results(
            ranks=tuple(self._ranks),
            flights=self._flights(),
            files=None if self._job is None else self._job.directory / "files",
            timeline=self._timeline,
        )

    def close(self) -> None:
        """Ends them, and removes what belongs to them."""
        if self._job is not None:
            self._job.close()

    def _share(self) -> Share:
        """Returns what each rank of this host gets of its cores."""
        return share_cores(
            self._hello["ranks"],
            Machine.here(),
            self._environment(),
            threads=self._hello["threads"],
            bind=self._hello["bind"],
        )

    def _flights(self) -> Path | None:
        """Returns where the ranks leave flight records."""
        text = self._environment().get(contract.FLIGHT_DIRECTORY, "")
        return Path(text) if text.startswith("/") else None

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._hello["environment"]}

    # --- What the launcher asks for ---

    def _keep_file(self, frame: Frame) -> None:
        """Takes a file that the ranks will find where `FILES` is replaced."""
        self._files[frame.fields["name"]] = frame.payload

    def _keep_stdin(self, frame: Frame) -> None:
        """Takes what each rank reads from standard input."""
        self._stdin = frame.payload

    def _start(self, frame: Frame) -> None:
        """Starts the ranks of this host."""
        told = frame.fields
        try:
            self._start_ranks(told, list(told["ranks"]))
        except (OSError, UsageError, ConfigurationError) as error:
            self._say("problem", text=str(error))

    def _start_ranks(self, told: Mapping[str, Any], ranks: list[int]) -> None:
        environment = self._environment()
        share = self._share()
        environment.update(share.variables)
        if self._hello["interface"]:
            address = interfaces.choose(
                self._hello["interface"], interfaces.own_addresses()
            )[0].address
            environment[contract.INTERFACE] = address
        listener = self._network.listener
        if listener is not None:
            interfaces.drop_waiting(listener)
        if self._hello["open_files"]:
            open_files.restore(self._hello["open_files"])
        self._job = job.Job(
            told["size"],
            open_files=open_files.make_room(ranks=len(ranks)),
            stdin=self._stdin,
            rendezvous=job.Rendezvous(
                address=told["rendezvous"],
                key=told["key"],
                listener=listener,
            ),
        )
        self._say("notes", lines=list(share.notes))
        flights = self._flights()
        if flights is not None:
            # The ranks make the last of its folders. Without it there are no
            # records, and else all is well.
            with contextlib.suppress(OSError):
                flights.parent.mkdir(parents=True, exist_ok=True)
        self._timeline = timelines.unseen(
            environment.get(contract.TIMELINE), told.get("timeline")
        )
        self._ranks = ranks
        directory = self._job.directory / "files"
        directory.mkdir()
        for name, data in self._files.items():
            (directory / name).write_bytes(data)
        command = with_files(self._hello["command"], directory)
        for index, rank in enumerate(ranks):
            process = self._job.start(
                rank,
                command,
                environment,
                cpus=share.cpus[index] if share.cpus else (),
            )
            self._say("started", rank=rank, pid=process.pid)
            self._running.append(process)
            self._events.add(process, self._collect, process)
            for name in ("stdout", "stderr"):
                pipe = getattr(process, name)
                self._streams[pipe.fileno()] = (rank, name)

    def _pages(self, frame: Frame) -> None:
        """Says what the ranks of this host show."""
        environment, ranks = self._environment(), tuple(self._ranks)
        name = "" if self._job is None else self._job.status_id
        self._answer_later(
            lambda number: host_pages.answer(number, environment, name, ranks),
            frame.fields["number"],
        )

    def _signal(self, frame: Frame) -> None:
        """Sends a signal to the ranks that are still running."""
        signum = frame.fields["number"]
        if signum in signals.REPORTING:
            for process in self._running:
                process.send_if_caught(signum)
            return
        for process in self._running:
            process.note_signal()
        # All at once: to find them is to look through all of /proc.
        sessions = {process.pid for process in self._running}
        if sessions:
            job_processes.send(job_processes.find(None, sessions), signum)

    # --- What ranks do ---

    def _read(self, fd: int) -> None:
        if fd not in self._streams:
            # It came together with the message that ended the ranks.
            return
        rank, name = self._streams[fd]
        data = os.read(fd, _READ)
        self._say("output", data, rank=rank, stream=name)
        if not data:
            del self._streams[fd]
            self._events.remove(fd)

    def _drain(self) -> None:
        """Reads what the ranks, which are dead, have left in their pipes."""
        end = time.monotonic() + _DRAIN_TIME
        while self._streams and time.monotonic() < end:
            # Somebody else may still hold a pipe open.
            poll = select.poll()
            for fd in self._streams:
                poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll(100):
                self._read(fd)

    def _collect(self, process: RankProcess) -> None:
        returncode = process.poll()
        if returncode is None or self._job is None:
            return
        self._running.remove(process)
        self._events.remove(process)
        error = self._job.error(process.rank)
        self._say(
            "ended",
            rank=process.rank,
            pid=process.pid,
            returncode=returncode,
            seen=time.time(),
            error=None if error is None else asdict(error),
            started=self._job.started(process.rank),
            ended_first=process.ended_first,
        )
