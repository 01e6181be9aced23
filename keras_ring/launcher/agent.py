"""An agent: runs the ranks of one host for a launcher, mostly of another.

The launcher starts it through `ssh`; they speak through its standard input and
output (`frames`). What the launcher promises of a job on one host, the agent
keeps here: however it, the launcher, or what is between them ends, no process
of a rank is left. The end of its input is not enough for that: a connection
may be cut without a word, so both say every second that they live.
"""

import contextlib
import os
import queue
import select
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from keras_ring._launch_protocol import (
    contract,
    interfaces,
    standard_streams,
)
from keras_ring.errors import ConfigurationError
from keras_ring.launcher import (
    host_facts,
    host_pages,
    job,
    job_processes,
    open_files,
    signals,
    timelines,
)
from keras_ring.launcher.agent_network import HostNetwork
from keras_ring.launcher.frames import (
    GREETING,
    Frame,
    FrameError,
    FrameReader,
    encode,
)
from keras_ring.launcher.function_rank import RESULTS
from keras_ring.launcher.output import Sink
from keras_ring.launcher.plan import FILES, check_command
from keras_ring.launcher.rank_process import RankProcess
from keras_ring.launcher.running_clock import RunningClock
from keras_ring.launcher.sharing import Machine, Share, share_cores
from keras_ring.launcher.signals import SignalPipe
from keras_ring.launcher.usage import UsageError

# Seconds between two signs of life of the launcher. Agents answer them, so that
# it hears all of its agents at one time and may sleep between; one that is not
# spoken to says all the same that it lives.
PULSE = 1.0
_OWN_PULSE = 1.5 * PULSE
_READ = 64 * 1024
# Seconds in which the pipes of dead ranks are read.
_DRAIN_TIME = 2.0

_Asked = TypeVar("_Asked")


class _Gone(Exception):
    """The launcher is not there any more."""


class Agent:
    """The ranks of this host.

    Args:
        hello: What the launcher has said first: the `environment` of the
            ranks, their `directory`, their `command`, how many `ranks` there
            are on this host, their `threads`, `bind` and `interface`, their
            soft limit of `open_files` if that is another than this process's,
            and how many seconds of `silence` end them.
        source: Descriptor from which frames come.
        sink: Descriptor to which they go.
    """

    def __init__(
        self, hello: Mapping[str, Any], source: int, sink: int
    ) -> None:
        self._hello = hello
        self._source = source
        self._sink = Sink(sink)
        self._reader = FrameReader()
        self._selector = selectors.DefaultSelector()
        self._job: job.Job | None = None
        self._running: list[RankProcess] = []
        # Descriptor -> rank and stream.
        self._streams: dict[int, tuple[int, str]] = {}
        self._files: dict[str, bytes] = {}
        self._stdin = b""
        # Whether the launcher has been asked for the end.
        self._asked = False
        self._ranks: list[int] = []
        self._clock = RunningClock(_OWN_PULSE)
        self._heard = self._clock.now()
        self._next_pulse = 0.0
        self._closed = False
        self._farewell: Iterator[bytes] | None = None
        # Where ranks leave timelines, if the launcher does not see it.
        self._timeline: Path | None = None
        # What other threads have to say.
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        self._verbs: dict[str, Callable[[Frame], None]] = {
            "alive": self._answer_pulse,
            "file": self._keep_file,
            "stdin": self._keep_stdin,
            "start": self._start,
            "signal": self._signal,
            "pages": self._pages,
            "close": self._close,
        }
        self._network = HostNetwork(hello, self._say, self._answer_later)
        self._verbs.update(self._network.verbs)

    def run(self) -> None:
        """Serves the launcher; returns when it is done, or gone."""
        self._sink.put(GREETING)
        self._prepare()
        self._look_at_clock()
        self._heard = self._clock.now()
        with SignalPipe() as pipe:
            self._selector.register(pipe, selectors.EVENT_READ, "signals")
            self._selector.register(
                self._source, selectors.EVENT_READ, "launcher"
            )
            self._selector.register(
                self._wake_read, selectors.EVENT_READ, "answers"
            )
            try:
                while not (self._closed and self._sink.empty):
                    self._step(pipe)
            except (_Gone, FrameError, OSError):
                # Nobody is left to be told.
                return
            finally:
                if self._job is not None:
                    self._job.close()

    def _say(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        self._sink.put(encode(kind, payload, **fields))

    def _prepare(self) -> None:
        """Tells what this host has, and what it lacks for the job."""
        problem = ""
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
            problem = f"the working directory {directory}: {error.strerror}"
        except (UsageError, ConfigurationError) as error:
            problem = str(error)
        ports = self._hello["ports"]
        wanted = range(ports[0], ports[1] + 1) if ports else None
        self._say("ready", problem=problem, **host_facts.gather(wanted))

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

    def _step(self, pipe: SignalPipe) -> None:
        self._go_on_with_farewell()
        self._arm()
        now = time.monotonic()
        if now >= self._next_pulse:
            self._next_pulse = now + _OWN_PULSE
            self._say("alive", time=time.time())
        wait = max(0.0, self._next_pulse - now)
        ready = self._selector.select(wait)
        self._look_at_clock()
        for key, _ in ready:
            if key.data == "launcher":
                self._hear()
            elif key.data == "answers":
                os.read(self._wake_read, _READ)
                while not self._answers.empty():
                    self._sink.put(self._answers.get())
            elif key.data == "sink":
                self._sink.write_some()
            elif isinstance(key.data, RankProcess):
                self._collect(key.data)
            elif key.data == "stream" and key.fd in self._streams:
                self._read(key.fd)
        while self._sink.always_ready and not self._sink.empty:
            self._sink.write_some()
        # After the look at what it has said: this process itself may have been
        # held up.
        self._look_at_clock()
        if self._clock.now() - self._heard > self._hello["silence"]:
            raise _Gone
        for signum in pipe.read():
            if signum in signals.STOPPING:
                self._on_signal(signum)

    def _on_signal(self, signum: int) -> None:
        """Asks the launcher for the end of the job, or gives up.

        This host shuts down, or a scheduler wants the job gone: ranks get the
        time that the launcher gives them, if there is that much.
        """
        # The other end of `ssh` has gone.
        gone = signum == signal.SIGHUP
        if gone or self._asked or not self._running:
            raise _Gone
        self._asked = True
        self._say("asked", number=signum)

    def _look_at_clock(self) -> None:
        """Finds out whether this process has stood still.

        Then the launcher was not silent; if it was stopped as well, it may go
        on somewhat later.
        """
        if self._clock.look() >= self._hello["silence"] / 3:
            self._heard = self._clock.now()

    def _arm(self) -> None:
        for fd in self._streams:
            # Ranks that print more than the launcher takes have to wait.
            self._want(fd, selectors.EVENT_READ, not self._sink.full, "stream")
        if not self._sink.always_ready:
            wanted = not self._sink.empty
            self._want(self._sink.fd, selectors.EVENT_WRITE, wanted, "sink")

    def _want(self, fd: int, events: int, wanted: bool, data: str) -> None:
        known = fd in self._selector.get_map()
        if known and not wanted:
            self._selector.unregister(fd)
        elif wanted and not known:
            self._selector.register(fd, events, data)

    def _hear(self) -> None:
        data = os.read(self._source, _READ)
        if not data:
            raise _Gone
        self._heard = self._clock.now()
        for frame in self._reader.feed(data):
            self._verbs[frame.kind](frame)

    # --- What the launcher asks for ---

    def _answer_pulse(self, frame: Frame) -> None:
        self._next_pulse = 0.0

    def _answer_later(
        self, ask: Callable[[_Asked], bytes], what: _Asked
    ) -> None:
        """Answers from a thread of its own, for it takes time."""

        def run() -> None:
            self._answers.put(ask(what))
            os.write(self._wake_write, b".")

        threading.Thread(target=run, daemon=True).start()

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
        command = [
            str(directory) if word == FILES else word
            for word in self._hello["command"]
        ]
        for index, rank in enumerate(ranks):
            process = self._job.start(
                rank,
                command,
                environment,
                cpus=share.cpus[index] if share.cpus else (),
            )
            self._say("started", rank=rank, pid=process.pid)
            self._running.append(process)
            self._selector.register(process, selectors.EVENT_READ, process)
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

    def _close(self, frame: Frame) -> None:
        """Ends what is left; then its ranks' notes are handed over."""
        leftover = 0
        if self._job is not None:
            leftover = len(self._job.kill_all())
            self._drain()
            flights = self._flights()
            for rank in self._ranks if flights else ():
                # And those of its process sets.
                self._send_files("flight", flights, f"flight.{rank}.*json")
            self._send_files("result", self._job.directory / "files", RESULTS)
        self._farewell = self._last_words(leftover)

    def _last_words(self, leftover: int) -> Iterator[bytes]:
        for name, piece in timelines.pieces(self._timeline, self._ranks):
            yield encode("timeline", piece, name=name)
        if self._timeline is not None:
            timelines.remove(self._timeline)
        yield encode("closed", leftover=leftover)

    def _go_on_with_farewell(self) -> None:
        """Says as much as the launcher takes: timelines may be long."""
        while self._farewell is not None and not self._sink.full:
            frame = next(self._farewell, None)
            if frame is None:
                self._farewell, self._closed = None, True
            else:
                self._sink.put(frame)

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

    def _send_files(
        self, kind: str, directory: Path | None, pattern: str
    ) -> None:
        if directory is None:
            return
        try:
            for path in directory.glob(pattern):
                self._say(kind, path.read_bytes(), name=path.name)
        except OSError as error:
            self._say("notes", lines=[f"cannot read {directory}: {error}"])

    # --- What ranks do ---

    def _read(self, fd: int) -> None:
        rank, name = self._streams[fd]
        data = os.read(fd, _READ)
        self._say("output", data, rank=rank, stream=name)
        if not data:
            del self._streams[fd]
            if fd in self._selector.get_map():
                self._selector.unregister(fd)

    def _collect(self, process: RankProcess) -> None:
        returncode = process.poll()
        if returncode is None or self._job is None:
            return
        self._running.remove(process)
        self._selector.unregister(process)
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


def main(hello: Mapping[str, Any]) -> NoReturn:
    """Runs an agent on the standard streams of this process."""
    standard_streams.fill_closed()
    # What anything here prints by itself is none of a frame.
    sink = os.dup(1)
    os.dup2(2, 1)
    # A launcher that is gone is noticed by what is written, not by a signal.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    Agent(hello, 0, sink).run()
    os._exit(0)
