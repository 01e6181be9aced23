"""The ranks of an agent: their start, their output and their end."""

import contextlib
import itertools
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keras_ring.errors import ConfigurationError
from keras_ring.launch import (
    agent_results,
    host_pages,
    job,
    job_processes,
    open_files,
    signals,
    timelines,
)
from keras_ring.launch.agent_answers import AnswerLater
from keras_ring.launch.agent_network import HostNetwork
from keras_ring.launch.event_loop import EventLoop
from keras_ring.launch.frames import Frame
from keras_ring.launch.member_sockets import MemberSockets
from keras_ring.launch.rank_command import check_command, with_files
from keras_ring.launch.rank_process import RankProcess
from keras_ring.launch.sharing import Machine, Share, share_cores
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import contract, interfaces

_READ = 64 * 1024
# Seconds in which the pipes of dead ranks are read.
_DRAIN_TIME = 2.0


class AgentRanks:
    """The ranks of this host.

    Args:
        hello: Dictionary, the first message of the launcher; see `Agent`.
        events: `EventLoop` that waits for the ranks' output and end.
        network: `HostNetwork` with the socket of rank 0, if rank 0 is here.
        say: Function that sends a message to the launcher.
        answer_later: Function that calls another one in a thread and sends the
            message that it returns.
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
        # Those that have ended as well, until the job has.
        self._processes: dict[int, RankProcess] = {}
        # In an elastic job, what each rank and the launcher tell each other.
        self._sockets = MemberSockets(
            events, lambda rank, message: say("member", message, rank=rank)
        )
        self._elastic = False
        # By which a rank is started, now or later.
        self._command: Sequence[str] = ()
        self._of_ranks: Mapping[str, str] = {}
        self._cpus: Sequence[Sequence[int]] = ()
        # The places of the ranks that run, each with processors of its own.
        self._places: dict[int, int] = {}
        # Rank and stream, by descriptor.
        self._streams: dict[int, tuple[int, str]] = {}
        self._files: dict[str, bytes] = {}
        self._stdin = b""
        # Directory of the timelines, if the launcher does not see it.
        self._timeline: Path | None = None
        self.verbs: dict[str, Callable[[Frame], None]] = {
            "file": self._keep_file,
            "stdin": self._keep_stdin,
            "start": self._start,
            "join": self._join,
            "member": self._tell_member,
            "kill": self._kill,
            "signal": self._signal,
            "pages": self._pages,
        }

    @property
    def running(self) -> bool:
        """Returns whether any of the ranks has not ended."""
        return bool(self._running)

    def prepare(self) -> str:
        """Returns what this host lacks for the job, or `""`.

        Makes the working directory of the ranks that of this process.
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
        """Starts or stops reading the ranks' output; they wait if stopped."""
        for fd in self._streams:
            self._events.want_to_read(fd, wanted, self._read, fd)

    def end(self) -> int:
        """Kills the processes that are left, and reads their last output.

        Returns:
            Integer, the number of processes that were left.
        """
        if self._job is None:
            return 0
        leftover = len(self._job.kill_all())
        self._drain()
        return leftover

    def results(self) -> agent_results.Results:
        """Returns the files that the ranks have left for the launcher."""
        return agent_results.Results(
            ranks=tuple(self._ranks),
            elastic=self._elastic,
            flights=self._flights(),
            files=None if self._job is None else self._job.directory / "files",
            timeline=self._timeline,
        )

    def close(self) -> None:
        """Ends the ranks, and removes their files."""
        self._sockets.close()
        if self._job is not None:
            self._job.close()

    def _share(self) -> Share:
        """Returns the share of this host's cores that each rank gets."""
        return share_cores(
            self._hello["ranks"],
            Machine.here(),
            self._environment(),
            threads=self._hello["threads"],
            bind=self._hello["bind"],
        )

    def _flights(self) -> Path | None:
        """Returns the directory of the ranks' flight records, if any."""
        text = self._environment().get(contract.FLIGHT_DIRECTORY, "")
        return Path(text) if text.startswith("/") else None

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._hello["environment"]}

    # --- Messages of the launcher ---

    def _keep_file(self, frame: Frame) -> None:
        """Keeps a file for the directory that replaces `FILES`."""
        self._files[frame.fields["name"]] = frame.payload

    def _keep_stdin(self, frame: Frame) -> None:
        """Keeps the bytes that each rank reads from standard input."""
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
            open_files=open_files.make_room(ranks=self._hello["ranks"]),
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
            # The ranks make the last folder of the path. If this fails, only
            # the records are missing.
            with contextlib.suppress(OSError):
                flights.parent.mkdir(parents=True, exist_ok=True)
        self._timeline = timelines.unseen(
            environment.get(contract.TIMELINE), told.get("timeline")
        )
        directory = self._job.directory / "files"
        directory.mkdir()
        for name, data in self._files.items():
            (directory / name).write_bytes(data)
        self._command = with_files(self._hello["command"], directory)
        self._of_ranks, self._cpus = environment, share.cpus
        self._elastic = told["elastic"]
        for rank in ranks:
            self._start_rank(self._job, rank)

    def _start_rank(
        self, of: job.Job, rank: int, *, joins: bool = False
    ) -> None:
        taken = set(self._places.values())
        place = next(each for each in itertools.count() if each not in taken)
        process = of.start(
            rank,
            self._command,
            self._of_ranks,
            membership_fd=self._sockets.open(rank) if self._elastic else None,
            joins=joins,
            cpus=self._cpus[place % len(self._cpus)] if self._cpus else (),
        )
        if self._elastic:
            self._sockets.watch(rank)
        self._say("started", rank=rank, pid=process.pid)
        self._places[rank] = place
        self._ranks.append(rank)
        self._running.append(process)
        self._processes[rank] = process
        self._events.add(process, self._collect, process)
        for name in ("stdout", "stderr"):
            pipe = getattr(process, name)
            self._streams[pipe.fileno()] = (rank, name)

    def _join(self, frame: Frame) -> None:
        """Starts a process that joins the job."""
        rank = frame.fields["rank"]
        if self._job is None:
            self._say("cannot_join", rank=rank, why="its agent has no job")
            return
        try:
            self._start_rank(self._job, rank, joins=True)
        except OSError as error:
            self._sockets.disconnect(rank)
            self._say("cannot_join", rank=rank, why=str(error))

    def _tell_member(self, frame: Frame) -> None:
        """Passes on what the launcher tells a rank of an elastic job."""
        self._sockets.send(frame.fields["rank"], frame.payload)

    def _kill(self, frame: Frame) -> None:
        """Kills what is left of a rank, which may have ended itself."""
        process = self._processes.get(frame.fields["rank"])
        if process is not None:
            process.kill()

    def _pages(self, frame: Frame) -> None:
        """Sends the status pages of the ranks of this host."""
        environment = self._environment()
        ranks = None if self._elastic else tuple(self._ranks)
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
        # Search once for all of them: it reads all of /proc.
        sessions = {process.pid for process in self._running}
        if sessions:
            job_processes.send(job_processes.find(None, sessions), signum)

    # --- Events of the ranks ---

    def _read(self, fd: int) -> None:
        if fd not in self._streams:
            # This event came together with the message that ended the ranks.
            return
        rank, name = self._streams[fd]
        data = os.read(fd, _READ)
        self._say("output", data, rank=rank, stream=name)
        if not data:
            del self._streams[fd]
            self._events.remove(fd)
            self._close_if_over(self._processes[rank])

    def _drain(self) -> None:
        """Reads the output that is left in the pipes of the dead ranks."""
        end = time.monotonic() + _DRAIN_TIME
        while self._streams and time.monotonic() < end:
            # Another process may still hold a pipe open.
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
        self._sockets.disconnect(process.rank)
        del self._places[process.rank]
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
        self._close_if_over(process)

    def _close_if_over(self, process: RankProcess) -> None:
        """Closes the files of an ended rank: a job may lose hundreds."""
        open_ranks = {rank for rank, _ in self._streams.values()}
        if process not in self._running and process.rank not in open_ranks:
            process.close()
