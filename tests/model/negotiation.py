"""How ranks agree on what to run, run it, and end.

csrc/control/controller.cc, csrc/control/tensor_queue.cc,
csrc/runtime/background_loop.cc and csrc/runtime/executor.cc, message by
message. A step is one event of one thread of a rank: the program submits or
leaves, the loop takes up one event and does all that follows from it, whoever
runs buckets begins or ends one. Time passes as it likes, with one exception,
the grace in `suspect`.
"""

import dataclasses
from typing import NamedTuple

from tests.model.explorer import Violation

# ProgressPage::Left
HERE, LEFT, GONE = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Faults:
    """What broken code would do."""

    # CompleteIfReady: does not wait for all subtrees.
    decides_too_early: bool = False
    # Handle(DecisionMessage): children that are idle are not told.
    passes_on_only_when_busy: bool = False
    # PendingFor: counts what was sent before the name failed.
    counts_what_failed: bool = False
    # Close: leaves what no decision has named.
    forgets_the_undecided: bool = False
    # HandleClosed: a peer that has said Bye is taken for dead.
    takes_an_end_for_a_death: bool = False
    # HandleClosed: after an agreed end, whoever goes has left.
    ignores_a_death_after_the_end: bool = False
    # Abort: tells nobody.
    keeps_the_cause: bool = False
    # Executor::FinishWhenAborted: fires at once, and again upon the abort.
    finishes_twice: bool = False
    # Lost: blames the first that has left, whyever. This one was in the code.
    blames_who_left_first: bool = False
    # HandleClosed: PeerGone after an agreed end only. So was this one.
    aborts_without_a_mark: bool = False
    # Executor::Stop: does not wait for buckets.
    leaves_before_its_buckets: bool = False


@dataclasses.dataclass(frozen=True)
class Scenario:
    """`programs`: for each rank, the names that it submits.

    Names are submitted without waiting, except that a rank waits for the last
    use of a name before it uses it again. A name may have a mark of what it
    asks for, as in "a!": ranks must agree on that, too.
    """

    programs: tuple[tuple[str, ...], ...]
    # By rank; -1 at the coordinator.
    parents: tuple[int, ...]
    # How many ranks may be killed, and names found stalled.
    deaths: int = 0
    stalls: int = 0
    # Buckets are run by the loop where it can.
    inline: bool = False
    # Ranks that leave as soon as they have submitted all.
    early: tuple[int, ...] = ()
    # The grace of a suspicion is too short, once the end is agreed on.
    short_grace: bool = False


class Rank(NamedTuple):
    up: bool = True
    killed: bool = False
    submitted: int = 0
    leaving: bool = False
    # One per operation submitted: None, "ok", or an error.
    results: tuple = ()
    # TensorQueue: operations by number. Fresh: not popped yet.
    fresh: tuple = ()
    parked: tuple = ()
    # Controller
    sequence: int = 0
    ended: bool = False
    pending: tuple = ()  # of (name, ((from, mark), ...))
    failed: tuple = ()  # of (name, sequence)
    ready: tuple = ()  # coordinator
    outstanding: int = 0
    # BackgroundLoop
    commands: tuple = ()
    finished: tuple | None = None  # why
    leave_sent: bool = False
    gone: frozenset = frozenset()  # peers whose connections are closed
    byes: frozenset = frozenset()  # peers that have said so
    suspicion: tuple | None = None
    # Executor and Collective
    buckets: tuple = ()  # of operations each
    running: tuple | None = None
    runs_inline: bool = False
    entered: int = 0  # buckets, counted
    failed_data: bool = False
    held: tuple = ()  # failed_entries_
    aborted: tuple | None = None
    left: int = HERE  # as all see it


class Job(NamedTuple):
    ranks: tuple[Rank, ...]
    wires: tuple  # of messages, by (from, to) in the order of Model.wires
    decided: tuple = ()  # all decisions, in order: what nobody may differ from
    deaths: int = 0
    stalls: int = 0


def _name(operation):
    return operation.rstrip("!")


class Negotiation:
    """See Scenario."""

    def __init__(self, scenario, faults=None):
        self.scenario = scenario
        self.faults = faults or Faults()
        self.size = len(scenario.programs)
        self.parents = scenario.parents
        self.children = [
            [r for r in range(self.size) if self.parents[r] == rank]
            for rank in range(self.size)
        ]
        self.peers = [
            [p for p in (self.parents[r], *self.children[r]) if p >= 0]
            for r in range(self.size)
        ]
        pairs = [(a, b) for a in range(self.size) for b in self.peers[a]]
        self.wires = {pair: i for i, pair in enumerate(pairs)}

    def initial(self):
        return Job(
            ranks=(Rank(),) * self.size,
            wires=((),) * len(self.wires),
            deaths=self.scenario.deaths,
            stalls=self.scenario.stalls,
        )

    def is_final(self, job):
        return all(not rank.up for rank in job.ranks)

    def actions(self, job):
        for index, rank in enumerate(job.ranks):
            if not rank.up:
                continue
            for label, take in self._steps(job, index, rank):
                label = f"rank {index}: {label}"
                work = Work(self, job, index, label)
                take(work)
                yield label, work.job()
                if job.deaths:
                    yield from self._killed_amid(job, index, label, take)
            if job.deaths:
                work = Work(self, job, index, f"rank {index} is killed")
                work.be_killed()
                yield work.label, work.job()

    def _killed_amid(self, job, index, label, take):
        """Killed when some of the messages of a step are out."""
        sends = 1
        while True:
            work = Work(self, job, index, label, sends_until_killed=sends)
            take(work)
            if work.sends_until_killed > 0 or work.sent <= sends:
                return
            yield f"{label}, killed after {sends} messages", work.job()
            sends += 1

    def _steps(self, job, index, rank):
        program = self.scenario.programs[index]
        if rank.submitted < len(program):
            if self._may_submit(rank, program):
                yield "submits", Work.submit
        elif not rank.leaving and (
            None not in rank.results or index in self.scenario.early
        ):
            yield "leaves", Work.leave
        if rank.fresh:
            yield "loop pops requests", Work.pop_requests
        if rank.leaving and not rank.leave_sent and rank.finished is None:
            yield "loop says that it leaves", Work.send_leave
        for peer in self.peers[index]:
            if peer in rank.gone:
                continue
            if job.wires[self.wires[peer, index]]:
                yield (
                    f"loop hears rank {peer}",
                    lambda work, peer=peer: work.hear(peer),
                )
            elif not job.ranks[peer].up:
                yield (
                    f"loop sees that rank {peer} has closed",
                    lambda work, peer=peer: work.see_closed(peer),
                )
        if rank.suspicion and not rank.aborted and self._grace_over(job, rank):
            yield "loop suspects", Work.suspect
        if (
            self.parents[index] < 0
            and rank.pending
            and job.stalls
            and not rank.ended
        ):
            yield "finds a stall", Work.fail_stalled
        if rank.running is None and rank.buckets:
            yield "begins a bucket", Work.begin_bucket
        if rank.running is not None:
            if self._may_end(job, rank):
                yield "ends a bucket", Work.end_bucket
            if self.lost(job, rank) is not None or rank.aborted:
                yield "fails in a bucket", Work.fail_bucket
        if rank.leaving and rank.finished is not None:
            idle = rank.running is None and not rank.buckets and not rank.held
            if idle or self.faults.leaves_before_its_buckets:
                yield "is gone", Work.close

    def _may_submit(self, rank, program):
        name = _name(program[rank.submitted])
        return all(
            result is not None or _name(program[i]) != name
            for i, result in enumerate(rank.results)
        )

    def _grace_over(self, job, rank):
        """BackgroundLoopOptions::suspicion_grace.

        Assumed to be long enough for everything that is on its way.
        """
        if self.scenario.short_grace and rank.finished is not None:
            return True
        return not any(
            peer not in other.gone
            and (job.wires[self.wires[peer, index]] or not job.ranks[peer].up)
            for index, other in enumerate(job.ranks)
            if other.up
            for peer in self.peers[index]
        )

    def _may_end(self, job, rank):
        """ChunkBarrier::AwaitAll: all have entered the bucket."""
        return all(other.entered >= rank.entered for other in job.ranks)

    def lost(self, job, rank):
        """ChunkBarrier::Lost."""
        lost = [
            index
            for index, other in enumerate(job.ranks)
            if other.left and other.entered < rank.entered
        ]
        if not lost:
            return None
        gone = [i for i, other in enumerate(job.ranks) if other.left == GONE]
        if self.faults.blames_who_left_first:
            gone = []
        return ([i for i in gone if i in lost] or gone or lost)[0]

    def fault(self, job):
        for index, rank in enumerate(job.ranks):
            if rank.up or rank.killed:
                continue
            if None in rank.results:
                return f"rank {index} has left an operation pending"
            dead = [i for i, other in enumerate(job.ranks) if other.killed]
            for what, who in (r for r in rank.results if r != "ok"):
                if what == "lost" and who not in dead:
                    return f"rank {index} blames rank {who}, killed: {dead}"
        return None


class Work:
    """One step of a rank: what it changes."""

    def __init__(self, model, job, index, label, sends_until_killed=None):
        self.model = model
        self.faults = model.faults
        self.index = index
        self.label = label
        self.ranks = list(job.ranks)
        self.wires = list(job.wires)
        self.decided = job.decided
        self.deaths, self.stalls = job.deaths, job.stalls
        self.sends_until_killed = (
            1 << 30 if sends_until_killed is None else sends_until_killed
        )
        self.sent = 0
        self.new_decisions = []

    def job(self):
        if self.sends_until_killed <= 0:
            self.be_killed()
        return Job(
            tuple(self.ranks),
            tuple(self.wires),
            self.decided,
            self.deaths,
            self.stalls,
        )

    @property
    def me(self):
        return self.ranks[self.index]

    def set(self, **values):
        self.ranks[self.index] = self.me._replace(**values)

    def fail(self, what):
        raise Violation(what, self.label)

    def send(self, peer, message):
        """To a closed peer: dropped."""
        self.sent += 1
        if self.sends_until_killed <= 0:
            return
        self.sends_until_killed -= 1
        if self.ranks[peer].up:
            self.wires[self.model.wires[self.index, peer]] += (message,)

    def fire(self, operations, result):
        """Completion::Fire, exactly once for each."""
        results = list(self.me.results)
        for operation in operations:
            if results[operation] is not None:
                self.fail(f"operation {operation} is finished twice")
            results[operation] = result
        self.set(results=tuple(results))

    # --- The program ---

    def submit(self):
        """TensorQueue::Add."""
        me = self.me
        number = me.submitted
        self.set(submitted=number + 1, results=(*me.results, me.finished))
        if me.finished is None:
            self.set(fresh=(*me.fresh, number))

    def leave(self):
        """Runtime::Shutdown, up to the wait in BackgroundLoop::Leave."""
        self.set(leaving=True)

    def close(self):
        """The rest of Runtime::Shutdown; connections close."""
        self.set_left(self.index, LEFT)
        if self.has_agreed and not self.me.aborted:
            for peer in self.model.peers[self.index]:
                if peer not in self.me.gone:
                    self.send(peer, ("bye",))
        self.set(up=False)
        self._drop_what_came()

    @property
    def has_agreed(self):
        """BackgroundLoop::agreed_."""
        return self.me.finished is not None and self.me.finished[0] == "end"

    def be_killed(self):
        self.deaths -= 1
        self.set(up=False, killed=True)
        self._drop_what_came()

    def _drop_what_came(self):
        for peer in self.model.peers[self.index]:
            self.wires[self.model.wires[peer, self.index]] = ()
        # What nobody can see any more.
        me = self.me
        self.ranks[self.index] = Rank(
            up=False,
            killed=me.killed,
            results=me.results if not me.killed else (),
            entered=me.entered,
            left=me.left,
        )

    # --- BackgroundLoop ---

    def pop_requests(self):
        """TensorQueue::PopRequests, Controller::Submit."""
        fresh = self.me.fresh
        self.set(fresh=(), parked=tuple(sorted((*self.me.parked, *fresh))))
        ready = []
        for number in fresh:
            operation = self.operation(number)
            mark = operation.endswith("!")
            ready += self.contribute(
                self.index, self.me.sequence, _name(operation), (mark,)
            )
        self.flush(ready)

    def send_leave(self):
        """Controller::Leave."""
        self.set(leave_sent=True)
        if self.model.parents[self.index] < 0:
            self.end_job(self.index)
        elif not self.me.ended:
            self.send(self.model.parents[self.index], ("leave", self.index))
        self.flush([])

    def hear(self, peer):
        """HandleEvent of a message, Controller::Handle."""
        wire = self.model.wires[peer, self.index]
        (kind, *rest), *others = self.wires[wire]
        self.wires[wire] = tuple(others)
        if self.me.finished is not None and not self.has_agreed:
            return
        if kind == "bye":
            self.set(byes=self.me.byes | {peer})
            return
        if self.has_agreed:
            if kind == "abort":
                self.abort_the_rest(rest[0], None)
            return
        ready = []
        if kind == "ready":
            sequence, names = rest
            if sequence > self.me.sequence:
                self.fail("readiness from the future")
            if not self.me.ended:
                for name, marks in names:
                    ready += self.contribute(peer, sequence, name, marks)
        elif kind == "leave":
            if self.model.parents[self.index] < 0:
                self.end_job(rest[0])
            else:
                self.send(self.model.parents[self.index], ("leave", *rest))
        elif kind == "decision":
            self.hear_decisions(rest[0])
        elif kind == "abort":
            self.abort(rest[0], None)
            return
        self.flush(ready)

    def hear_decisions(self, decisions):
        """Handle(DecisionMessage): passed on, then applied."""
        busy = self.me.pending or self.me.parked
        if busy or not self.faults.passes_on_only_when_busy:
            for child in self.model.children[self.index]:
                self.send(child, ("decision", decisions))
        for decision in decisions:
            self.apply(decision)

    def see_closed(self, peer):
        """HandleEvent of a closed connection."""
        self.set(gone=self.me.gone | {peer})
        agreed = self.has_agreed or (
            self.me.commands and self.me.commands[-1][0] == "end"
        )
        if agreed and self.faults.ignores_a_death_after_the_end:
            return
        if agreed or not self.faults.aborts_without_a_mark:
            self.set_left(peer, GONE)
        heeds = not self.faults.takes_an_end_for_a_death
        if agreed and peer in self.me.byes and heeds:
            return
        self.abort(("lost", peer), peer)

    def set_left(self, index, why):
        """ChunkBarrier::SetLeft."""
        rank = self.ranks[index]
        self.ranks[index] = rank._replace(left=rank.left or why)

    def suspect(self):
        """HandleTimers: the data plane's word is taken for the cause."""
        self.abort(self.me.suspicion, None)

    def abort(self, cause, reported_by):
        """BackgroundLoop::Abort."""
        if self.has_agreed:
            self.abort_the_rest(cause, reported_by)
        if self.me.finished is not None:
            return
        if not self.faults.keeps_the_cause:
            for peer in self.model.peers[self.index]:
                if peer != reported_by and peer not in self.me.gone:
                    self.send(peer, ("abort", cause))
        self.finish(cause)
        self.abort_executor(cause)

    def abort_the_rest(self, cause, reported_by):
        """BackgroundLoop::AbortTheRest."""
        if self.me.aborted:
            return
        for peer in self.model.peers[self.index]:
            if peer != reported_by and peer not in self.me.gone:
                self.send(peer, ("abort", cause))
        self.abort_executor(cause)

    def finish(self, cause):
        """BackgroundLoop::Finish, TensorQueue::Close."""
        me = self.me
        self.set(finished=cause, fresh=(), parked=(), pending=(), commands=())
        undecided = me.fresh + me.parked
        named = {n for command in me.commands for n in command[1:]}
        if self.faults.forgets_the_undecided:
            undecided = tuple(
                n for n in undecided if _name(self.operation(n)) in named
            )
        self.fire(undecided, cause)

    # --- Controller, readiness on its way up ---

    def operation(self, number):
        return self.model.scenario.programs[self.index][number]

    def contribute(self, sender, sent_at, name, marks):
        """Contribute, PendingFor, CompleteIfReady: what is complete below."""
        failed_at = dict(self.me.failed).get(name, 0)
        if sent_at < failed_at and not self.faults.counts_what_failed:
            return []
        pending = dict(self.me.pending)
        came = dict(pending.pop(name, ()))
        if sender in came:
            self.fail(f"rank {sender} contributes to {name} twice")
        came[sender] = marks
        needed = 1 + len(self.model.children[self.index])
        if self.faults.decides_too_early:
            needed -= bool(self.model.children[self.index])
        complete = len(came) >= needed
        if not complete:
            pending[name] = tuple(sorted(came.items()))
        self.set(pending=tuple(sorted(pending.items())))
        if not complete:
            return []
        all_marks = tuple(sorted({m for marks in came.values() for m in marks}))
        return [(name, all_marks)]

    def flush(self, ready):
        """SlotComplete, VariantsComplete, and what Take sends."""
        if self.model.parents[self.index] >= 0:
            if ready:
                self.send(
                    self.model.parents[self.index],
                    ("ready", self.me.sequence, tuple(ready)),
                )
        else:
            for name, marks in ready:
                if len(marks) == 1:
                    self.set(ready=(*self.me.ready, name))
                else:
                    self.decide(("fail", name))
            self.decide_ready()
            if self.new_decisions:
                for child in self.model.children[self.index]:
                    self.send(child, ("decision", tuple(self.new_decisions)))
                self.new_decisions = []
        self.carry_out()

    # --- Coordinator ---

    def decide_ready(self):
        """DecideReady: at most two buckets out; all that is ready is one."""
        me = self.me
        if me.ready and me.outstanding < 2 and not me.ended:
            self.set(ready=(), outstanding=me.outstanding + 1)
            self.decide(("run", *me.ready))

    def decide(self, decision):
        if self.me.ended:
            return
        self.decided += (decision,)
        self.new_decisions.append(decision)
        self.apply(decision)

    def end_job(self, who):
        self.decide(("end", who))

    def fail_stalled(self):
        """FailStalled: time has passed for the first that is pending."""
        self.stalls -= 1
        self.decide(("fail", self.me.pending[0][0]))
        self.flush([])

    # --- Every rank, decisions on their way down ---

    def apply(self, decision):
        """Controller::Apply."""
        me = self.me
        if self.decided[me.sequence] != decision:
            self.fail(f"decision {me.sequence + 1} differs")
        self.set(sequence=me.sequence + 1, commands=(*me.commands, decision))
        if decision[0] == "fail":
            name = decision[1]
            failed = {**dict(me.failed), name: self.me.sequence}
            pending = dict(me.pending)
            pending.pop(name, None)
            self.set(
                failed=tuple(sorted(failed.items())),
                pending=tuple(sorted(pending.items())),
            )
        elif decision[0] == "end":
            self.set(ended=True, pending=(), ready=())

    def carry_out(self):
        """BackgroundLoop::CarryOut, unless the loop is in a bucket itself."""
        while (
            self.me.commands
            and not self.me.runs_inline
            and self.me.finished is None
        ):
            (kind, *what), *others = self.me.commands
            self.set(commands=tuple(others))
            if kind == "run":
                self.run_or_push(self.take(what))
            elif kind == "fail":
                self.fail_name(what[0])
            else:
                self.finish((kind, *what))

    def take(self, names):
        """TensorQueue::Take, which dies if the entry is not there."""
        taken = []
        for name in names:
            number = self.find_parked(name)
            if number is None:
                self.fail(f"runs {name}, which it has not asked for")
            taken.append(number)
        self.set(parked=tuple(n for n in self.me.parked if n not in taken))
        return tuple(taken)

    def fail_name(self, name):
        """TensorQueue::TakeIfNegotiating."""
        number = self.find_parked(name)
        if number is not None:
            self.set(parked=tuple(n for n in self.me.parked if n != number))
            self.fire([number], ("failed", name))

    def find_parked(self, name):
        for number in self.me.parked:
            if _name(self.operation(number)) == name:
                return number
        return None

    # --- Executor ---

    def run_or_push(self, bucket):
        """RunOrPush, MayRunHere."""
        me = self.me
        if me.aborted:
            self.fire(bucket, me.aborted)
            return
        idle = me.running is None and not me.buckets
        self.set(buckets=(*me.buckets, bucket))
        if idle and self.model.scenario.inline:
            self.set(runs_inline=True)
            self.begin_bucket()

    def begin_bucket(self):
        """Executor::Run, and kPacked of the bucket."""
        bucket, *others = self.me.buckets
        self.set(buckets=tuple(others), running=bucket)
        if self.me.failed_data:
            self.fail_bucket()
        else:
            self.set(entered=self.me.entered + 1)

    def end_bucket(self):
        """Execute: reported as executed, then finished."""
        self.fire(self.me.running, "ok")
        self.done_with_bucket(outstanding=self.me.outstanding - 1)

    def fail_bucket(self):
        """Guard and FinishWhenAborted: leaves, and waits for the cause."""
        me = self.me
        if not me.failed_data and not me.aborted:
            self.set(suspicion=("lost", self.model.lost(self, me)))
        self.set(failed_data=True)
        self.set_left(self.index, LEFT)
        if me.aborted:
            self.fire(me.running, me.aborted)
        else:
            self.set(held=(*me.held, *me.running))
            if self.faults.finishes_twice:
                self.fire(me.running, self.me.suspicion)
        self.done_with_bucket()

    def done_with_bucket(self, **values):
        self.set(running=None, runs_inline=False, **values)
        if self.me.finished is None:
            self.flush([])

    def abort_executor(self, cause):
        """Executor::Abort; the collective is broken with the same cause."""
        me = self.me
        if me.aborted:
            return
        dropped = tuple(n for bucket in me.buckets for n in bucket)
        self.set(aborted=cause, buckets=(), held=(), suspicion=None)
        self.fire(me.held + dropped, cause)
