"""Runs a job on several hosts, through an agent on each."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from keras_ring.launch import open_files, signals, timelines
from keras_ring.launch.agent_connection import AgentConnection
from keras_ring.launch.agent_loop import AgentLoop
from keras_ring.launch.elastic_hosts import ElasticHosts
from keras_ring.launch.elastic_ranks import ElasticRanks
from keras_ring.launch.ending import Ending
from keras_ring.launch.frames import Frame
from keras_ring.launch.function_rank import write_private
from keras_ring.launch.host_discovery import HostDiscovery
from keras_ring.launch.host_pages import HostPages, served
from keras_ring.launch.hosts import Host
from keras_ring.launch.job_end import JobEnd
from keras_ring.launch.lost_files import LostFiles
from keras_ring.launch.metrics_server import Show, serving
from keras_ring.launch.output import RankStream, Sink
from keras_ring.launch.plan import LaunchPlan
from keras_ring.launch.preflight import HostsError, Preflight
from keras_ring.launch.screen import Screen
from keras_ring.launch.summary import RankEnd, rank_names
from keras_ring.launch.supervisor import run_here
from keras_ring.launch.timelines import Parts
from keras_ring.launch.usage import say
from keras_ring.observe.directory import status_directory
from keras_ring.observe.jobs import tidy
from keras_ring.protocol.error_file import RankError
from keras_ring.protocol.job_id import job_id

# Seconds more than the agent of an elastic job waits for a sign of life: the
# ranks that others go on without have ended by then. Pulses take the first.
_FENCE = 2.0
# Hosts of --host-discovery-script for which there are descriptors, and further
# ranks with files of output.
_DISCOVERED = 64
# Seconds between the signal to an agent of an elastic job, and the decision
# whether it was meant for its host or for the job.
_ASKING_TIME = 1.0
_LET_GO = "with its host, which takes no more ranks"
# Seconds without a message of an agent that sends the files of its ranks.
_CLOSING_SILENCE = 10.0


class Cluster:
    """The ranks of a job on several hosts.

    Args:
        plan: `LaunchPlan`, the command and the hosts.
        parts: `Parts` that collects the ranks' timelines. `None` if they are
            not recorded.
        show: Function called with a function that reads the ranks' status
            pages.
        stdout: Integer, the descriptor for the ranks' standard output.
        stderr: Integer, the descriptor for the ranks' standard error.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        parts: Parts | None = None,
        show: Show = lambda read: None,
        *,
        stdout: int = 1,
        stderr: int = 2,
    ) -> None:
        self._plan = plan
        self._parts = parts
        self._sinks = (Sink(stdout), Sink(stderr))
        self._screen = Screen(plan, self._sinks)
        self._ending = Ending(plan.patience, self._send)
        self._elastic = ElasticRanks.of(
            plan, self._ending, send=self._tell_member, kill=self._kill
        )
        # The agents of all ranks that have started, and the ranks that run.
        self._agents: dict[int, AgentConnection] = {}
        self._alive: set[int] = set()
        # Where others may join.
        self._hosts: ElasticHosts | None = None
        self._rendezvous = ""
        # Agents whose hosts take no more ranks, and when those are killed that
        # have not left.
        self._leaving: dict[AgentConnection, float] = {}
        # Agents that have got a signal, by the number of that, and when it is
        # decided what that means.
        self._asked: dict[AgentConnection, signal.Signals] = {}
        self._decides_at: float | None = None
        self._streams: dict[tuple[int, str], RankStream] = {}
        self._pids: dict[int, int] = {}
        self._ends: dict[int, RankEnd] = {}
        self._notes: set[str] = set()
        self._lost = LostFiles()
        self._leftover = 0
        self._started = False
        self._running = False
        self._hurried = False
        self._loop = AgentLoop(
            self._sinks,
            on_signal=self._on_signal,
            on_loss=self._on_loss,
            on_deaf=self._on_deaf,
            log_format=self._screen.format,
            silence=plan.patience.host_timeout
            + (0.0 if self._elastic is None else _FENCE),
            hold_ranks=self._elastic is not None,
        )
        self._show = show
        self._pages = HostPages(lambda: tuple(self._loop.agents))
        self._watchers = contextlib.ExitStack()
        self._loop.verbs.update(
            notes=self._on_notes,
            problem=self._on_problem,
            started=self._on_started,
            asked=self._on_asked,
            member=self._on_member,
            cannot_join=self._on_cannot_join,
            output=self._on_output,
            ended=self._on_ended,
            flight=self._on_flight,
            result=self._on_result,
            timeline=self._on_timeline,
            pages=self._pages.on_pages,
            closed=self._on_closed,
        )

    def run(self) -> JobEnd:
        """Runs the job. Returns once all of its processes have ended.

        Raises:
            HostsError: If the job cannot start.
        """
        began = time.time()
        with self._loop as loop, self._watchers:
            try:
                preflight = Preflight(self._plan, loop, self._is_stopped)
                if rendezvous := preflight.run():
                    began = time.time()
                    self._start(rendezvous)
                while self._running and self._alive:
                    self._step()
            finally:
                self._close()
        return self._result(began)

    def _is_stopped(self) -> bool:
        return self._ending.stop_signal is not None

    def _start(self, rendezvous: str) -> None:
        self._rendezvous = rendezvous
        for agent in self._loop.agents:
            self._begin(agent)
        self._running = True
        if self._plan.max_size is not None:
            self._hosts = ElasticHosts(
                self._plan,
                self._loop,
                wanted=self._wanted_hosts(),
                meet=self._meeting_place,
                begin=self._begin,
                let_go=self._let_go,
            )
        self._start_joiners()
        self._show(self._pages.read)
        self._watchers.enter_context(
            served(
                self._plan.environment,
                job_id(self._plan.key),
                self._pages.read,
            )
        )

    def _begin(self, agent: AgentConnection) -> None:
        """Tells an agent what it needs, and starts the ranks of its host."""
        files = self._plan.files
        for path in () if files is None else sorted(files.iterdir()):
            agent.say("file", path.read_bytes(), name=path.name)
        if self._plan.stdin:
            agent.say("stdin", self._plan.stdin)
        agent.say(
            "start",
            size=self._plan.size,
            ranks=list(agent.host_ranks.ranks),
            rendezvous=self._rendezvous,
            key=self._plan.key,
            timeline=self._parts and self._parts.token,
            elastic=self._elastic is not None,
        )
        if self._loop.held:
            agent.say("hold", held=True)
        for rank in agent.host_ranks.ranks:
            self._agents[rank] = agent
            self._alive.add(rank)

    def _wanted_hosts(self) -> Callable[[], Sequence[Host]]:
        """Returns the function that tells the hosts that there are."""
        hosts = tuple(
            Host(each.host, each.places) for each in self._plan.host_ranks
        )
        script = self._plan.host_discovery_script
        if not script:
            return lambda: hosts
        discovery = HostDiscovery(script, hosts)
        self._watchers.enter_context(discovery)
        return lambda: discovery.hosts

    def _meeting_place(self) -> tuple[AgentConnection, str] | None:
        """Returns the agent, and the address, by which others are to come in.

        They are those of the rank that has been there for longest.
        """
        there = self._alive - set(
            self._elastic.joining if self._elastic else ()
        )
        if self._elastic is None or not there:
            return None
        rank = min(there)
        address = self._elastic.address_of(rank)
        if not address and rank == 0:
            address = self._rendezvous.rpartition(":")[0].strip("[]")
        return self._agents[rank], address

    def _step(self) -> None:
        elastic = self._elastic
        deadlines = [self._ending.deadline, self._screen.deadline]
        if elastic is not None:
            deadlines.append(elastic.deadline)
        if not self._ending.begun:
            # They are no concern of a job that ends.
            deadlines += (self._decides_at, *self._leaving.values())
            if self._hosts is not None:
                deadlines.append(self._hosts.deadline)
        times = [each for each in deadlines if each is not None]
        # While the job ends, or its ranks wait for each other, do not wait for
        # a slow reader.
        self._loop.urgent = self._ending.begun or (
            elastic is not None and elastic.is_changing
        )
        self._loop.step(min(times, default=None))
        self._ending.follow()
        self._decide_asked()
        if elastic is not None:
            elastic.follow()
        if elastic is not None and self._hosts is not None:
            for rank in elastic.take_joined():
                self._hosts.on_join(self._agents[rank])
        if self._hosts is not None and not self._ending.begun:
            self._hosts.follow()
            self._start_joiners()
        if not self._ending.begun:
            self._close_leaving()
        self._screen.show_due()

    def _start_joiners(self) -> None:
        """Starts processes that join the job, where there are free places."""
        if self._elastic is None or self._hosts is None:
            return
        free = {
            agent: max(places - len(self._ranks_of(agent)), 0)
            for agent, places in self._hosts.places().items()
        }
        for number in self._elastic.to_start(sum(free.values())):
            agent = max(free, key=lambda each: free[each])
            free[agent] -= 1
            self._agents[number] = agent
            self._alive.add(number)
            agent.say("join", rank=number)

    def _let_go(self, agent: AgentConnection) -> None:
        """Lets the ranks of a host leave, which takes no more of them."""
        self._leaving[agent] = (
            time.monotonic() + self._plan.patience.grace_period
        )
        if self._elastic is not None:
            self._elastic.leave(self._ranks_of(agent))

    def _close_leaving(self) -> None:
        """Ends the agents whose ranks have left, and the ranks that do not."""
        now = time.monotonic()
        for agent, until in list(self._leaving.items()):
            ranks = self._ranks_of(agent)
            if not ranks:
                del self._leaving[agent]
                agent.say("close")
            elif now >= until:
                self._leaving[agent] = math.inf
                for rank in ranks:
                    self._kill(rank)

    def _tell_member(self, rank: int, message: bytes) -> None:
        self._agents[rank].say("member", message, rank=rank)

    def _kill(self, rank: int) -> None:
        """Kills what is left of a rank."""
        self._agents[rank].say("kill", rank=rank)

    def _send(self, signum: int) -> None:
        self._loop.say("signal", number=int(signum))

    def _on_signal(self, signum: int) -> None:
        if signum in signals.REPORTING:
            self._send(signum)
        elif not self._running and self._ends:
            # All ranks have ended; only their files and output are left.
            self._hurried = True
        elif signum in signals.STOPPING:
            self._ending.on_request(signum)

    def _on_deaf(self) -> None:
        # Nobody reads the output any more (`| head`): end as programs do then.
        if self._running and not self._is_stopped():
            self._ending.stop(signal.SIGPIPE, forward=signal.SIGTERM)

    # --- Messages of agents ---

    def _on_notes(self, agent: AgentConnection, frame: Frame) -> None:
        for line in frame.fields["lines"]:
            # Hosts are mostly alike, so show each line once.
            if line not in self._notes:
                self._notes.add(line)
                say(f"{agent.host}: {line}")

    def _on_problem(self, agent: AgentConnection, frame: Frame) -> None:
        text = f"{agent.host}: {frame.fields['text']}"
        if self._hosts is not None and self._hosts.on_problem(agent, text):
            self._note_loss(agent, text)
            return
        if self._running:
            raise HostsError(text)
        say(text)

    def _on_started(self, agent: AgentConnection, frame: Frame) -> None:
        self._pids[frame.fields["rank"]] = frame.fields["pid"]

    def _on_asked(self, agent: AgentConnection, frame: Frame) -> None:
        """Takes note that an agent has got a signal.

        A scheduler that ends the job sends it to all agents; what takes a host
        away, to one.
        """
        if not self._running or self._ending.begun:
            return
        self._asked[agent] = signal.Signals(frame.fields["number"])
        if self._decides_at is None:
            pause = 0.0 if self._elastic is None else _ASKING_TIME
            self._decides_at = time.monotonic() + pause
        self._decide_asked()

    def _decide_asked(self) -> None:
        """Ends the job, or the ranks of the hosts whose agents got a signal."""
        if self._decides_at is None or time.monotonic() < self._decides_at:
            return
        asked, self._asked, self._decides_at = self._asked, {}, None
        if self._ending.begun:
            return
        going = {*asked, *self._leaving}
        ranks = [rank for agent in going for rank in self._ranks_of(agent)]
        if self._elastic is None or not self._elastic.goes_on_without(ranks):
            agent, signum = next(iter(asked.items()))
            say(f"{agent.host}: {signum.name} to its agent ends the job")
            self._ending.on_request(signum)
            return
        for agent, signum in asked.items():
            say(f"{agent.host}: {signum.name} to its agent: its ranks leave")
            if self._hosts is None:
                self._let_go(agent)
            else:
                self._hosts.leave(agent)

    def _on_member(self, agent: AgentConnection, frame: Frame) -> None:
        """Takes note of what a rank of an elastic job has said."""
        if self._elastic is not None:
            self._elastic.hear(frame.fields["rank"], frame.payload)

    def _on_cannot_join(self, agent: AgentConnection, frame: Frame) -> None:
        number = frame.fields["rank"]
        self._alive.discard(number)
        if self._hosts is not None:
            self._hosts.on_failed_joiner(agent)
        if self._elastic is not None:
            self._elastic.on_failed_start(
                number, f"{agent.host}: {frame.fields['why']}"
            )
            self._start_joiners()

    def _on_output(self, agent: AgentConnection, frame: Frame) -> None:
        rank, name = frame.fields["rank"], frame.fields["stream"]
        stream = self._streams.get((rank, name))
        if stream is None:
            host = agent.facts.get("host", agent.host)
            stream = self._streams[rank, name] = self._screen.stream(
                rank, name, host
            )
        if frame.payload:
            stream.feed(frame.payload)
        else:
            stream.finish()
            del self._streams[rank, name]

    def _on_ended(self, agent: AgentConnection, frame: Frame) -> None:
        told = frame.fields
        let_go = agent in self._leaving and told["returncode"] < 0
        self._started = self._started or told["started"]
        self._note_ends(
            [
                RankEnd(
                    rank=told["rank"],
                    pid=told["pid"],
                    returncode=told["returncode"],
                    seen=agent.here(told["seen"]),
                    error=_error(told["error"], agent),
                    stopped=self._ending.begun and not told["ended_first"],
                    killed=self._ending.killed,
                    host=agent.host,
                    lost=_LET_GO if let_go else "",
                )
            ]
        )

    def _note_ends(self, ends: Sequence[RankEnd]) -> None:
        """Records the end of ranks: of one, or of those of a lost host."""
        self._alive.difference_update(end.rank for end in ends)
        elastic = self._elastic
        if elastic is not None:
            joining = [end for end in ends if elastic.is_joining(end.rank)]
            for end in joining:
                elastic.on_end_of_joiner(end)
                if self._hosts is not None and not end.lost:
                    self._hosts.on_failed_joiner(self._agents[end.rank])
            ends = [end for end in ends if end not in joining]
        if ends:
            self._note_ends_of_members(ends)
        self._start_joiners()

    def _note_ends_of_members(self, ends: Sequence[RankEnd]) -> None:
        others_end = (
            f"rank {ends[0].rank} has failed"
            if self._elastic is None
            else self._elastic.why_others_end(ends)
        )
        for end in ends:
            self._ends[end.rank] = replace(end, left_behind=not others_end)
            if others_end and end.lost:
                self._ending.on_loss()
            elif others_end and end.returncode != 0:
                self._ending.on_failure()
        if self._elastic is not None:
            self._elastic.on_end(ends, others_end)

    def _ranks_of(self, agent: AgentConnection) -> list[int]:
        """Returns the ranks that run on the host of an agent."""
        return [
            rank for rank in sorted(self._alive) if self._agents[rank] is agent
        ]

    def _on_loss(self, agent: AgentConnection, why: str) -> None:
        """Records the end of the ranks of a lost host."""
        if not self._running:
            if self._ends:
                say(f"{agent.host} was lost before it had handed over: {why}")
            return
        if self._hosts is not None and self._hosts.on_loss(agent, why):
            return
        if self._elastic is not None:
            say(f"{agent.host} is lost: {why}")
        self._note_loss(agent, why)

    def _note_loss(self, agent: AgentConnection, why: str) -> None:
        """Records the end of the ranks of a host that takes no more."""
        self._leaving.pop(agent, None)
        self._asked.pop(agent, None)
        self._note_ends(
            [
                RankEnd(
                    rank=rank,
                    pid=self._pids.get(rank, 0),
                    returncode=1,
                    seen=time.time(),
                    stopped=self._ending.begun,
                    host=agent.host,
                    lost=f"with its host: {why}",
                )
                for rank in self._ranks_of(agent)
            ]
        )

    def _on_flight(self, agent: AgentConnection, frame: Frame) -> None:
        """Writes a flight record that a rank has left on its host."""
        directory, name = self._plan.flight_directory, frame.fields["name"]
        if directory is None or "/" in name:
            return
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(directory / name, frame.payload)
        except OSError as error:
            self._lost.note(directory / name, error)

    def _on_result(self, agent: AgentConnection, frame: Frame) -> None:
        """Writes the result of a function on another host."""
        directory, name = self._plan.files, frame.fields["name"]
        if directory is None or "/" in name:
            return
        try:
            write_private(directory / name, frame.payload)
        except OSError as error:
            say(f"cannot keep {name} of {agent.host}: {error}")

    def _on_timeline(self, agent: AgentConnection, frame: Frame) -> None:
        """Writes a piece of a timeline that ranks have left on their host."""
        if self._parts is not None:
            self._parts.add(frame.fields["name"], frame.payload)

    def _on_closed(self, agent: AgentConnection, frame: Frame) -> None:
        self._leftover += frame.fields["leftover"]
        agent.closed = True

    # --- The end ---

    def _close(self) -> None:
        self._running = False
        self._ending.finish()
        self._loop.urgent = True
        silence = max(_CLOSING_SILENCE, self._plan.patience.host_timeout)
        self._loop.close(silence, lambda: self._hurried)
        for stream in self._streams.values():
            stream.finish()
        self._screen.show_all()
        self._screen.close()
        self._lost.tell_others()
        while not self._hurried and not all(s.empty for s in self._sinks):
            self._loop.step(None)

    def _result(self, began: float) -> JobEnd:
        return JobEnd.of(
            tuple(self._ends.values()),
            tail=self._screen.tail,
            began=began,
            stop_signal=self._ending.stop_signal,
            leftover=self._leftover,
            started=self._started,
        )


def _error(
    told: dict[str, object] | None, agent: AgentConnection
) -> RankError | None:
    """Returns the error that a rank recorded, with its time by our clock."""
    error = RankError.from_record(told)
    return error and replace(error, time=agent.here(error.time))


def run_plan(plan: LaunchPlan) -> JobEnd:
    """Runs a job as planned, on this process's standard streams.

    Must be called from the main thread, which receives signals.

    Raises:
        HostsError: If the job cannot start on its hosts.
        UsageError: If its metrics cannot be served, or this process may not
            open as many files as it needs.
    """
    tidy(status_directory(plan.environment))
    hosts, most = len(plan.host_ranks), max(plan.size, plan.max_size or 0)
    if plan.host_discovery_script:
        # Of those that it will tell, nobody knows the number.
        hosts, most = max(hosts, _DISCOVERED), plan.size + _DISCOVERED
    kept = most if plan.output.directory else 0
    ranks = 0 if plan.host_ranks else plan.size
    with (
        open_files.room(ranks=ranks, hosts=hosts, kept_ranks=kept) as before,
        serving(plan.metrics, os.environ) as show,
        timelines.recorded(plan.timeline) as parts,
    ):
        return _run(replace(plan, open_files=before), parts, show)


def _run(plan: LaunchPlan, parts: Parts | None, show: Show) -> JobEnd:
    if not plan.host_ranks:
        return run_here(plan, show)
    say(
        ", ".join(
            f"{rank_names(each.ranks)} on {each.host}"
            for each in plan.host_ranks
            if each.ranks
        )
    )
    return Cluster(plan, parts, show).run()
