"""Watches the ranks of a job until all have ended.

It has one thread and one selector, and sleeps until a rank prints or ends, a
signal comes, a slow output takes more bytes, or a grace period is over.
"""

import contextlib
import functools
import itertools
import signal
import time
from dataclasses import replace

from keras_ring.launch import signals
from keras_ring.launch.elastic_ranks import ElasticRanks
from keras_ring.launch.ending import Ending
from keras_ring.launch.event_loop import EventLoop
from keras_ring.launch.job import Job, Rendezvous
from keras_ring.launch.job_end import JobEnd
from keras_ring.launch.member_sockets import MemberSockets
from keras_ring.launch.metrics_server import Show
from keras_ring.launch.output import PipedStream, Sink
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.rank_command import with_files
from keras_ring.launch.rank_process import RankProcess
from keras_ring.launch.screen import Screen
from keras_ring.launch.signals import SignalPipe
from keras_ring.launch.summary import RankEnd
from keras_ring.launch.usage import say
from keras_ring.observe.directory import status_directory
from keras_ring.observe.jobs import local_pages


class Supervisor:
    """The event loop that starts ranks, shows their output and ends them.

    Args:
        plan: `LaunchPlan` to run.
        job: `Job` to which the ranks belong.
        stdout: Integer, the descriptor for the ranks' standard output.
        stderr: Integer, the descriptor for the ranks' standard error.
    """

    def __init__(
        self, plan: LaunchPlan, job: Job, *, stdout: int = 1, stderr: int = 2
    ) -> None:
        self._plan = plan
        self._job = job
        self._events = EventLoop()
        self._sinks = (Sink(stdout), Sink(stderr))
        self._screen = Screen(plan, self._sinks)
        self._streams: set[PipedStream] = set()
        self._running: list[RankProcess] = []
        self._ends: list[RankEnd] = []
        self._ending = Ending(plan.patience, self._send)
        self._elastic = ElasticRanks.of(
            plan,
            self._ending,
            send=lambda rank, message: self._sockets.send(rank, message),
            kill=self._kill,
        )
        self._sockets = MemberSockets(self._events, self._hear_member)
        # Have ended, and their output may not be read yet.
        self._ended: list[RankProcess] = []
        # The places of the ranks that run, each with processors of its own.
        self._places: dict[int, int] = {}
        # Whether a rank has ended since the last `_collect`.
        self._any_ended = False

    def run(self) -> JobEnd:
        """Runs the job. Returns once all of its processes have ended."""
        started = time.time()
        with contextlib.ExitStack() as stack:
            pipe = stack.enter_context(SignalPipe())
            stack.enter_context(contextlib.closing(self._events))
            stack.enter_context(contextlib.closing(self._sockets))
            self._events.add_wake_up(pipe)
            self._start()
            while self._running:
                self._step(pipe)
            leftover = self._job.kill_all()
            # All processes are dead, so the pipes end.
            self._ending.finish()
            while self._streams or not all(s.empty for s in self._sinks):
                if not self._step(pipe):
                    break
        return self._result(started, len(leftover))

    def _start(self) -> None:
        for rank in range(self._plan.size):
            self._start_rank(rank)
        self._start_joiners()

    def _start_joiners(self) -> None:
        """Starts processes that join the job, if it has too few ranks."""
        if self._elastic is None:
            return
        for number in self._elastic.to_start():
            try:
                self._start_rank(number, joins=True)
            except OSError as error:
                self._sockets.disconnect(number)
                self._elastic.on_failed_start(number, str(error))

    def _start_rank(self, rank: int, *, joins: bool = False) -> None:
        elastic, cpus = self._elastic is not None, self._plan.cpus
        taken = set(self._places.values())
        place = next(each for each in itertools.count() if each not in taken)
        process = self._job.start(
            rank,
            self._plan.command,
            self._plan.environment,
            membership_fd=self._sockets.open(rank) if elastic else None,
            joins=joins,
            cpus=cpus[place % len(cpus)] if cpus else (),
        )
        self._places[rank] = place
        self._running.append(process)
        self._events.add(process, self._note_end, process)
        self._add_streams(process)
        if elastic:
            self._sockets.watch(rank)

    def _add_streams(self, process: RankProcess) -> None:
        streams = (
            ("stdout", process.stdout, self._sinks[0]),
            ("stderr", process.stderr, self._sinks[1]),
        )
        for name, pipe, sink in streams:
            if pipe is None:
                continue
            stream = self._screen.stream(process.rank, name)
            self._streams.add(PipedStream(pipe.fileno(), sink, stream))

    def _step(self, pipe: SignalPipe) -> bool:
        """Waits for the next events and handles them.

        Returns:
            Boolean, `False` if the user wants the launcher to end now.
        """
        self._arm()
        for handle, source in self._events.wait(self._timeout()):
            handle(source)
        if self._any_ended:
            self._collect()
        for signum in pipe.read():
            if not self._running and signum in signals.STOPPING:
                return False
            self._on_signal(signum)
        self._ending.follow()
        if self._elastic is not None:
            self._elastic.follow()
        self._close_ended()
        self._show()
        return True

    def _timeout(self) -> float | None:
        """Returns the seconds until the next deadline, or `None`."""
        deadlines = [self._ending.deadline, self._screen.deadline]
        if self._elastic is not None:
            deadlines.append(self._elastic.deadline)
        times = [each for each in deadlines if each is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _show(self) -> None:
        if self._streams:
            self._screen.show_due()
        else:
            self._screen.show_all()
        for sink in self._sinks:
            if sink.always_ready and not sink.empty:
                self._write(sink)

    def _arm(self) -> None:
        """Registers the events to wait for now."""
        for stream in self._streams:
            # A rank that prints more than the reader takes has to wait.
            wanted = not stream.sink.full
            self._events.want_to_read(stream.fd, wanted, self._read, stream)
        for sink in self._sinks:
            if not sink.always_ready:
                self._events.want_to_write(
                    sink.fd, not sink.empty, self._write, sink
                )

    def _read(self, stream: PipedStream) -> None:
        if not stream.read():
            self._events.remove(stream.fd)
            self._streams.discard(stream)
            stream.stream.finish()

    def _write(self, sink: Sink) -> None:
        # If nobody reads any more (`| head`), end as programs do then.
        if not sink.write() and self._running:
            if self._ending.stop_signal is None:
                self._ending.stop(signal.SIGPIPE, forward=signal.SIGTERM)

    def _note_end(self, process: RankProcess) -> None:
        self._any_ended = True

    def _collect(self) -> None:
        """Records the ranks that have ended, all with one time."""
        self._any_ended = False
        # Check all: several may have ended since the last call.
        seen = time.time()
        for process in list(self._running):
            returncode = process.poll()
            if returncode is None:
                continue
            self._running.remove(process)
            self._ended.append(process)
            self._events.remove(process)
            del self._places[process.rank]
            self._sockets.disconnect(process.rank)
            self._on_end(
                RankEnd(
                    rank=process.rank,
                    pid=process.pid,
                    returncode=returncode,
                    seen=seen,
                    error=self._job.error(process.rank),
                    stopped=self._ending.begun and not process.ended_first,
                    killed=self._ending.killed,
                )
            )
        self._start_joiners()

    def _on_end(self, end: RankEnd) -> None:
        others_end = f"rank {end.rank} has failed"
        if self._elastic is not None:
            if self._elastic.is_joining(end.rank):
                self._elastic.on_end_of_joiner(end)
                return
            others_end = self._elastic.why_others_end([end])
        self._ends.append(replace(end, left_behind=not others_end))
        if end.returncode != 0 and others_end:
            self._ending.on_failure()
        if self._elastic is not None:
            self._elastic.on_end([end], others_end)

    def _hear_member(self, rank: int, message: bytes) -> None:
        if self._elastic is not None:
            self._elastic.hear(rank, message)

    def _kill(self, rank: int) -> None:
        """Kills what is left of a rank, which may have ended itself."""
        for process in (*self._running, *self._ended):
            if process.rank == rank:
                process.kill()

    def _close_ended(self) -> None:
        """Closes the files of ended ranks: a job may lose hundreds."""
        open_pipes = {stream.fd for stream in self._streams}
        for process in list(self._ended):
            pipes = {
                pipe.fileno()
                for pipe in (process.stdout, process.stderr)
                if pipe is not None
            }
            if not pipes & open_pipes:
                process.close()
                self._ended.remove(process)

    def _on_signal(self, signum: int) -> None:
        if signum in signals.REPORTING:
            for process in self._running:
                process.send_if_caught(signum)
        elif signum in signals.STOPPING:
            self._ending.on_request(signum)

    def _send(self, signum: int) -> None:
        for process in self._running:
            process.note_signal()
            process.send(signum)

    def _result(self, started: float, leftover: int) -> JobEnd:
        for stream in self._streams:
            stream.stream.finish()
        self._screen.close()
        return JobEnd.of(
            self._ends,
            tail=self._screen.tail,
            began=started,
            stop_signal=self._ending.stop_signal,
            leftover=leftover,
            started=any(map(self._job.started, range(self._plan.size))),
        )


def run_here(plan: LaunchPlan, show: Show = lambda read: None) -> JobEnd:
    """Runs a job on this host, on this process's standard streams.

    Must be called from the main thread, which receives signals. The kernel ties
    the lives of the ranks to the thread that started them.

    Args:
        plan: `LaunchPlan` to run.
        show: Function called with a function that reads the ranks' status
            pages.

    Returns:
        The `JobEnd`.
    """
    for note in plan.notes:
        say(note)
    command = with_files(plan.command, plan.files)
    rendezvous = Rendezvous.on_loopback(plan.key)
    with Job(
        plan.size,
        rendezvous=rendezvous,
        open_files=plan.open_files,
        stdin=plan.stdin,
    ) as job:
        pages = status_directory(plan.environment)
        show(functools.partial(local_pages, pages, job.status_id))
        return Supervisor(replace(plan, command=command), job).run()
