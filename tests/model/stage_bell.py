"""How a stage of a host sleeps while it waits for connections as well.

That is csrc/collective/hierarchy/host_stage.cc (Look, Check, Arm, Disarm) with
the part of csrc/collective/shm/chunk_barrier.cc that rings its bell, and the
loop of csrc/comm/transport/tcp_transport.cc (Run, Await) around it. A wait has
no limit here, and no byte comes over a connection: the bell is all that ends a
sleep.
"""

import dataclasses

from tests.model.machine import END, Machine

AWAKE, ON_BELL = 0, 2
LEFT, DEAD = 1, 2


@dataclasses.dataclass(frozen=True)
class Faults:
    """What broken code would do."""

    # NumEvents: counts what others have done, not who has left.
    counts_no_one_who_left: bool = False
    # NumEvents: does not count an abort.
    counts_no_abort: bool = False
    # NumEvents: does not count the tasks of the other thread.
    counts_no_tasks: bool = False
    # Arm: looks for what has happened, then BeginSleep.
    looks_before_it_sleeps: bool = False
    # Look after the steps were taken, not before.
    looks_after_its_steps: bool = False
    # Publish: WakeOthers before the store.
    rings_before_publishing: bool = False
    # SetGone, Abort: Wake(local_rank_) is left out.
    forgets_itself: bool = False


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Rank 0 waits for the chunks of the others."""

    others: int = 1
    chunks: int = 1
    # Rank 1 publishes no more than so many chunks, and then calls Leave, unless
    # it hangs.
    leaves_after: int | None = None
    hangs: bool = False
    # Rank 1 may be killed at any step; the loop of rank 0 calls SetGone.
    killed: bool = False
    # The loop of rank 0 calls Abort at any time.
    aborted: bool = False
    # Another thread of rank 0 has one task to do.
    helper: bool = False


def stage(scenario, faults=None):
    """A model of one sleeper, and of all who can end its sleep."""
    faults = faults or Faults()
    others = range(1, scenario.others + 1)
    words = {"killed": 0, "asleep": AWAKE, "bell": 0, "aborted": 0, "tasks": 0}
    words.update({f"done {i}": 0 for i in others})
    words.update({f"left {i}": 0 for i in others})
    programs = {"rank 0": _stage(scenario, faults)}
    for i in others:
        programs[f"rank {i}"] = _publisher(i, scenario, faults)
    if scenario.killed:
        programs["loop 0"] = _set_gone(faults)
    if scenario.aborted:
        programs["loop 0"] = _abort(faults)
    if scenario.helper:
        programs["helper 0"] = _helper()
    return Machine(
        words=words,
        programs=programs,
        registers=("chunk", "seen", "sum"),
        mortal="rank 1" if scenario.killed else None,
    )


def _stage(scenario, faults):
    """The loop of TcpTransport::Run over a HostStage."""
    program = {}
    others = range(1, scenario.others + 1)

    # ChunkBarrier::NumEvents and tasks_done_, a word at a time.
    counted = [f"done {i}" for i in others]
    if not faults.counts_no_one_who_left:
        counted += [f"left {i}" for i in others]
    if not faults.counts_no_abort:
        counted.append("aborted")
    if scenario.helper and not faults.counts_no_tasks:
        counted.append("tasks")

    def counts(label, then):
        """Leaves NumEvents in `sum` when it is at `then`."""
        for at, word in enumerate(counted):
            last = at + 1 == len(counted)
            following = then if last else f"{label}, {counted[at + 1]}"

            def add(cpu, word=word, following=following):
                cpu.registers["sum"] += cpu.load(word)
                return following

            program[f"{label}, {word}"] = add
        return f"{label}, {counted[0]}"

    def takes(cpu):
        total = cpu.registers["sum"]
        cpu.registers["sum"] = 0
        return total

    # HostStage::Look
    def seen(cpu):
        cpu.registers["seen"] = takes(cpu)
        return "happened?" if faults.looks_after_its_steps else "advance 1"

    after_steps = "look" if faults.looks_after_its_steps else "happened?"
    begin = "advance 1" if faults.looks_after_its_steps else "look"
    program["begin"] = lambda cpu: begin
    look = counts("look", "seen")
    program["look"] = lambda cpu: look
    program["seen"] = seen

    # HostStage::Advance
    def advance(i):
        def has_done(cpu):
            if cpu.load(f"done {i}") <= cpu.registers["chunk"]:
                return after_steps
            return "tasks?" if i == scenario.others else f"advance {i + 1}"

        return has_done

    for i in others:
        program[f"advance {i}"] = advance(i)

    def tasks(cpu):
        if scenario.helper and not cpu.load("tasks"):
            return after_steps
        cpu.registers["chunk"] += 1
        return END if cpu.registers["chunk"] == scenario.chunks else "advance 1"

    program["tasks?"] = tasks

    # In Run: plan.events->Happened()
    happened = counts("happened", "since?")
    program["happened?"] = lambda cpu: happened
    program["since?"] = lambda cpu: (
        "check" if takes(cpu) == cpu.registers["seen"] else begin
    )

    # HostStage::Check: CheckNobodyLost
    def check(cpu):
        return END if cpu.load("aborted") else "left? 1"

    program["check"] = check

    def asks(i):
        def has_left(cpu):
            if cpu.load(f"left {i}"):
                return f"lost? {i}"
            return "arm" if i == scenario.others else f"left? {i + 1}"

        def is_lost(cpu):
            if cpu.load(f"done {i}") <= cpu.registers["chunk"]:
                return END
            return "arm" if i == scenario.others else f"left? {i + 1}"

        program[f"left? {i}"] = has_left
        program[f"lost? {i}"] = is_lost

    for i in others:
        asks(i)

    # HostStage::Arm
    def begin_sleep(cpu):
        cpu.store("asleep", ON_BELL)
        return "poll" if faults.looks_before_it_sleeps else last_look

    def may_sleep(cpu):
        if takes(cpu) != cpu.registers["seen"]:
            return "disarm"
        return "begin sleep" if faults.looks_before_it_sleeps else "poll"

    last_look = counts("last look", "may it sleep?")
    arm = last_look if faults.looks_before_it_sleeps else "begin sleep"
    program["arm"] = lambda cpu: arm
    program["begin sleep"] = begin_sleep
    program["may it sleep?"] = may_sleep

    # poll() of the descriptors.
    def poll(cpu):
        return "disarm" if cpu.load("bell") else None

    # HostStage::Disarm
    def disarm(cpu):
        cpu.store("asleep", AWAKE)
        return "clear the signal"

    def clear(cpu):
        cpu.store("bell", 0)
        return "happened?"

    program["poll"] = poll
    program["disarm"] = disarm
    program["clear the signal"] = clear
    return program


def _wake(program, label, then):
    """ChunkBarrier::WakeOthers or WakeSelf, as far as it rings the bell."""

    # wait.asleep.load() != 0
    def sleeps(cpu):
        return f"{label}: on its bell?" if cpu.load("asleep") else then

    # ChunkBarrier::Wake
    def on_bell(cpu):
        return f"{label}: signal" if cpu.load("asleep") == ON_BELL else then

    def signal(cpu):
        cpu.fetch_add("bell", 1)
        return then

    program[label] = sleeps
    program[f"{label}: on its bell?"] = on_bell
    program[f"{label}: signal"] = signal


def _publisher(i, scenario, faults):
    """Publish of one chunk after the other, and perhaps Leave."""
    program = {}
    stops = i == 1 and scenario.leaves_after is not None
    chunks = scenario.leaves_after if stops else scenario.chunks

    def following(cpu):
        if cpu.registers["chunk"] < chunks:
            return first
        return "leave" if stops and not scenario.hangs else END

    def publish(cpu):
        cpu.registers["chunk"] += 1
        cpu.store(f"done {i}", cpu.registers["chunk"])
        return "next" if faults.rings_before_publishing else "wake others"

    first = "wake others" if faults.rings_before_publishing else "publish"
    after = "publish" if faults.rings_before_publishing else "next"
    program["next"] = following
    program["publish"] = publish
    _wake(program, "wake others", after)

    # ChunkBarrier::SetLeft
    def leave(cpu):
        cpu.store(f"left {i}", LEFT)
        return "leave: wake others"

    program["leave"] = leave
    _wake(program, "leave: wake others", END)
    return program


def _set_gone(faults):
    """The loop of rank 0, which sees a connection end."""
    program = {}

    # If nobody is killed, there is nothing to be told.
    def told(cpu):
        if cpu.load("killed"):
            return "set gone"
        ended = all(thread.at == END for thread in cpu.threads[:-1])
        return END if ended else None

    def set_gone(cpu):
        cpu.store("left 1", DEAD)
        return END if faults.forgets_itself else "wake itself"

    program["told"] = told
    program["set gone"] = set_gone
    _wake(program, "wake itself", END)
    return program


def _abort(faults):
    """The loop of rank 0, which knows of a cause: ChunkBarrier::Abort."""
    program = {}

    def abort(cpu):
        cpu.store("aborted", 1)
        return END if faults.forgets_itself else "wake itself"

    program["abort"] = abort
    _wake(program, "wake itself", END)
    return program


def _helper():
    """HostStage::Do: a task of the other thread, and WakeSelf."""
    program = {}

    def done(cpu):
        cpu.fetch_add("tasks", 1)
        return "wake itself"

    program["done"] = done
    _wake(program, "wake itself", END)
    return program
